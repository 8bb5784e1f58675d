"""Measures calls between two ranks: 0 for all-reduce or 1 for send and receive, bytes, and the number of calls."""

import os
import statistics
import sys
import time

import hmcfs

sends, size, calls = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
comm = hmcfs.init()
x = comm.empty(size // 4, "f4")
x[:] = 0  # once: how a program fills memory decides what the caches hold, and so how fast it is copied


def call():
    if not sends:
        comm.all_reduce(x)
    elif comm.rank == 0:
        comm.send(x, 1)
    else:
        comm.recv(x, 0)


took = []
for i in range(3 + calls):
    comm.barrier()
    comm.barrier()
    begin = time.perf_counter()
    call()
    if i >= 3:
        took.append(time.perf_counter() - begin)
if comm.rank == 0:
    with open(os.environ["SECONDS_FILE"], "w") as f:
        f.write(repr(statistics.median(took)))
comm.barrier()
