"""KV blocks from a prefill process to a decode process. Usage: kv_blocks.py [BLOCKS [BYTES]]; $REDIS is a socket."""
import os, subprocess, sys, tempfile, time
import hmcfs, numpy as np

count, size = (int(a) for a in (sys.argv[1:3] + ["64", "262144"][len(sys.argv[1:3]):]))
keys = [f"kv-{i}" for i in range(count)]
wanted = np.random.default_rng(7).integers(0, 256, (count, size), dtype="u1")
server = os.environ.get("REDIS")
if server:
    import redis
    server = redis.Redis(unix_socket_path=server)

def decode(shm):
    with hmcfs.connect() as fs:
        cache = fs.empty((count, size))                     # where attention reads
        fs.wait(keys, timeout=60)
        ways = {"hmcfs mget": lambda: fs.mget(keys, out=list(cache)),           # from the other process's memory into this one
                "/dev/shm": lambda: np.copyto(cache, np.memmap(shm, "u1", "r", shape=cache.shape)),
                "Redis MGET": lambda: np.concatenate([np.frombuffer(v, "u1") for v in server.mget(keys)], out=cache.reshape(-1))}
        for way, read in list(ways.items())[: None if server else 2]:
            cache[:] = 0                                    # a cache in use has its pages
            start = time.perf_counter()
            read()
            took = time.perf_counter() - start
            assert np.array_equal(cache, wanted), way
            print(f"{way}: {count} blocks of {size} bytes in {took * 1e3:.2f} ms", flush=True)

if sys.argv[4:] == ["decode"]:
    sys.exit(decode(sys.argv[3]))
with hmcfs.connect() as fs, tempfile.NamedTemporaryFile(dir="/dev/shm") as shm:       # prefill
    cache = fs.empty((count, size))
    cache[:] = wanted                                       # prefill computes it here
    fs.mset(dict(zip(keys, cache)))                         # the keys name this memory: nothing is copied
    cache.tofile(shm.name)
    if server:
        server.mset(dict(zip(keys, map(bytes, cache))))
    subprocess.run([sys.executable, __file__, str(count), str(size), shm.name, "decode"], check=True)
    fs.delete(*keys)
