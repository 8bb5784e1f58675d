"""Measures calls of one key from Python, for tests/bench.

    calls.py hmcfs MOUNT|redis SOCKET get|set SIZE CALLS
    calls.py open MOUNT FILE 0 CALLS

prints the seconds that a call takes, on average. What is read is checked.
"""
import os
import sys
import time

store, at, call, size, calls = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
value = os.urandom(size)

if store == "redis":
    import redis

    client = redis.Redis(unix_socket_path=at)
    client.set("bench", value)

    def read():
        return client.get("bench")

    def write():
        client.set("bench", value)
elif store == "open":
    import hmcfs

    client = hmcfs.connect(at)
    path, call = os.path.relpath(call, client.path), "open"

    def write():
        with client.open(path) as file:
            return int(file.numpy()[0])
else:
    import hmcfs

    client = hmcfs.connect(at)
    source, target = client.empty(size, "u1"), client.empty(size, "u1")
    source[:] = memoryview(value)
    keys, out = ["bench"], [target]
    client.mset({"bench": source})
    # A key that has been set keeps what it names, and one of an earlier process is lost.
    fresh = iter([f"bench-{os.getpid()}-{i}" for i in range(calls + 200)])

    def read():
        client.mget(keys, out)
        return target

    def write():
        client.mset({next(fresh): source})

run = read if call == "get" else write
for _ in range(100):
    run()
begin = time.perf_counter()
for _ in range(calls):
    last = run()
took = (time.perf_counter() - begin) / calls
if call == "get" and bytes(last) != value:
    sys.exit("other bytes came back")
if store == "hmcfs":
    client.close()
print(took)
