"""A dataset staged: shards go from disk into host/ ahead of those who read them. Usage: dataset.py FOLDER [SHARDS [ROWS]]"""
import os, sys, threading, time
import hmcfs, numpy as np

disk, shards, rows = sys.argv[1], int((sys.argv[2:] + ["4"])[0]), int((sys.argv[3:] + ["16384"])[0])
fs = hmcfs.connect()
paths = [f"{disk}/shard-{i}.npy" for i in range(shards)]
for i, path in enumerate(paths):
    np.save(path, np.random.default_rng(i).standard_normal((rows, 256), dtype="f4"))
order = np.random.default_rng(9).permutation(rows)

def forget(path):
    """Drop a file from the page cache."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

def stage(i):
    with open(paths[i], "rb") as f, open(f"{fs.path}/host/shard-{i}.npy", "wb") as to:
        while os.sendfile(to.fileno(), f.fileno(), None, 1 << 24):
            pass
    fs.set(f"staged-{i}", b"1")                             # other processes may wait for it, too

def read(x):
    return float(sum(np.abs(x[at]).sum() for at in order))  # one sample at a time, in random order

def epoch(what, load):
    for path in paths: forget(path)
    start, total = time.perf_counter(), sum(read(load(i)) for i in range(shards))
    print(f"{what}: {(time.perf_counter() - start) * 1e3:.0f} ms for {shards} shards of {rows} samples")
    return total

def staged(i):
    fs.wait([f"staged-{i}"])
    return fs.open(f"host/shard-{i}.npy").numpy()           # maps it, without a copy

threading.Thread(target=lambda: [stage(i) for i in range(shards)]).start()
assert epoch("staged into host/", staged) == epoch("mapped from disk", lambda i: np.load(paths[i], mmap_mode="r"))
for i in range(shards):
    os.remove(f"{fs.path}/host/shard-{i}.npy"), fs.delete(f"staged-{i}")
