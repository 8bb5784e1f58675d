"""KV blocks from a prefill process to a decode process. Usage: kv_blocks.py [BLOCKS [BYTES]]; $REDIS is a socket."""
import os, subprocess, sys, time
import hmcfs, numpy as np

count, size = (int(a) for a in (sys.argv[1:3] + ["64", "262144"][len(sys.argv[1:3]):]))
keys = [f"kv-{i}" for i in range(count)]
wanted = np.random.default_rng(7).integers(0, 256, (count, size), dtype="u1")

def decode():
    with hmcfs.connect() as fs:
        cache = fs.empty((count, size))                     # where attention reads
        cache[:] = 0                                        # a cache in use has its pages
        fs.wait(keys, timeout=60)
        start = time.perf_counter()
        fs.mget(keys, out=list(cache))                      # from the other process's memory into this one
        took = time.perf_counter() - start
        assert np.array_equal(cache, wanted)
    print(f"hmcfs mget: {count} blocks of {size} bytes in {took * 1e3:.2f} ms", flush=True)
    if os.environ.get("REDIS"):
        import redis
        server, start = redis.Redis(unix_socket_path=os.environ["REDIS"]), time.perf_counter()
        for i, value in enumerate(server.mget(keys)):
            cache[i] = np.frombuffer(value, "u1")
        took = time.perf_counter() - start
        assert np.array_equal(cache, wanted)
        print(f"Redis MGET: the same in {took * 1e3:.2f} ms")

if sys.argv[3:] == ["decode"]:
    sys.exit(decode())
with hmcfs.connect() as fs:                                 # prefill
    cache = fs.empty((count, size))
    cache[:] = wanted                                       # prefill computes it here
    fs.mset(dict(zip(keys, cache)))                         # the keys name this memory: nothing is copied
    if os.environ.get("REDIS"):
        import redis
        redis.Redis(unix_socket_path=os.environ["REDIS"]).mset(dict(zip(keys, map(bytes, cache))))
    subprocess.run([sys.executable, __file__, str(count), str(size), "decode"], check=True)
    fs.delete(*keys)
