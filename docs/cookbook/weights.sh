#!/bin/sh
# Weights loaded once and shared by three engines, while the daemon is killed.
# Usage: weights.sh FOLDER [MIB]. It mounts at FOLDER/mnt.
set -eu
dir=$1 mib=${2:-64} mnt=$1/mnt engines=
mkdir -p "$mnt"
hmcfs mount --state-dir "$dir/state" --runtime-dir "$dir/run" --device "host,size=$((mib * 2))MiB" "$mnt"
trap '[ -z "$engines" ] || kill $engines; hmcfs umount "$mnt"' EXIT
python3 -c "import numpy as np; np.save('$dir/w.npy', np.random.default_rng(3).standard_normal($mib << 17))"
cp "$dir/w.npy" "$mnt/host/w.npy" # once
cat >"$dir/engine.py" <<'END'
import hmcfs, numpy as np, os, sys, time
where, disk, go = sys.argv[1:]
start = time.perf_counter()
w = hmcfs.connect(where).open("host/w.npy").numpy()    # maps the file's memory
took = time.perf_counter() - start
total = w.sum()
rss = {l.split()[0]: int(l.split()[1]) for l in open("/proc/self/smaps_rollup") if "kB" in l}
print(f"engine: mapped in {took * 1e3:.2f} ms; own memory {rss['Anonymous:'] // 1024} MiB, the weights have {w.nbytes >> 20}", flush=True)
while not os.path.exists(go):                          # meanwhile the daemon is killed
    assert w[::4096].sum() != 0
    time.sleep(0.01)
assert w.sum() == total                                # the memory outlived the daemon
start = time.perf_counter()
own = np.load(disk)                                    # the other way: each engine has a copy
took = time.perf_counter() - start
assert np.array_equal(hmcfs.connect(where).open("host/w.npy").numpy(), own)
print(f"engine: the same after the death of the daemon; a copy from disk takes {took * 1e3:.0f} ms and {own.nbytes >> 20} MiB more", flush=True)
END
for i in 1 2 3; do
	python3 "$dir/engine.py" "$mnt" "$dir/w.npy" "$dir/go" >"$dir/engine$i" &
	engines="$engines $!"
done
until [ "$(cat "$dir"/engine? | grep -c mapped)" = 3 ]; do sleep 0.05; done
kill -9 "$(hmcfs status --json "$mnt" | sed -n 's/^  "pid": \([0-9]*\),$/\1/p')"
cmp "$dir/w.npy" "$mnt/host/w.npy" # by the daemon that follows it
touch "$dir/go"
for pid in $engines; do wait "$pid"; done
engines=
cat "$dir"/engine?
