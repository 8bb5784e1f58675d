"""Measures all-reduce of float32 and barriers of Gloo, through PyTorch, for tests/bench.

    allreduce.py RANK RANKS PORT ROUNDS BYTES...

Rank 0 prints a line for each size: bytes, and the seconds that a call takes at
the slowest rank, the median of the rounds. 0 bytes is a barrier. The results
are checked.
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist


def main(rank: int, ranks: int, port: int, rounds: int, sizes: list[int]) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    for size in sizes:
        index = torch.arange(size // 4, dtype=torch.int64)
        want = sum((index * 7 + r * 13) % 1024 for r in range(ranks)).to(torch.float32)
        calls = 50 if size < 65536 else 1
        took = []
        for k in range(-2, rounds):
            data = ((index * 7 + rank * 13) % 1024).to(torch.float32)
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                if size:
                    dist.all_reduce(data)
                else:
                    dist.barrier()
            mine = torch.tensor([(time.perf_counter() - begin) / calls], dtype=torch.float64)
            dist.all_reduce(mine, op=dist.ReduceOp.MAX)
            if k >= 0:
                took.append(mine.item())
            if calls == 1 and size and not torch.equal(data, want):
                sys.exit(f"rank {rank}: wrong result of {size} bytes")
        if rank == 0:
            print(size, f"{statistics.median(took):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:5]), sizes=[int(a) for a in sys.argv[5:]])
