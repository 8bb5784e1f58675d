"""A checkpoint into host/, flushed to disk behind the training. Usage: checkpoint.py FOLDER [MIB [MS]]"""
import os, subprocess, sys, time
import hmcfs, numpy as np

disk, steps, mib, work = sys.argv[1], 3, int((sys.argv[2:] + ["64"])[0]), int((sys.argv[3:] + ["1000"])[0])
fs = hmcfs.connect()
state = np.random.default_rng(5).standard_normal(mib << 17)

def train(step):
    state[:] += step
    time.sleep(work / 1000)                                 # the card computes

def flush(name):
    """Copy a checkpoint to disk, under its name only when it is all there, and free its memory."""
    script = 'cp "$1" "$2.part" && sync "$2.part" && mv "$2.part" "$2" && rm "$1"'
    return subprocess.Popen(["sh", "-c", script, "sh", f"{fs.path}/host/{name}", f"{disk}/{name}"])

def save_behind(name):
    np.save(f"{fs.path}/host/{name}", state)
    return flush(name)

def save_to_disk(name):
    with open(f"{disk}/{name}", "wb") as f:
        np.save(f, state)
        os.fsync(f.fileno())

for what, save in (("into host/, flushed behind", save_behind), ("to disk, with fsync", save_to_disk)):
    stopped, flushing = 0.0, None
    for step in range(steps):
        train(step)
        start = time.perf_counter()
        if flushing is not None and flushing.wait() != 0:   # one at a time; it has had the whole step
            sys.exit("a checkpoint could not be flushed")
        flushing = save(f"step-{step}.npy")
        stopped += time.perf_counter() - start
    print(f"{what}: training stood still for {stopped / steps * 1e3:.1f} ms for each {state.nbytes >> 20} MiB")
    if flushing is not None and flushing.wait() != 0:
        sys.exit("a checkpoint could not be flushed")
    assert np.array_equal(np.load(f"{disk}/step-{steps - 1}.npy"), state)
    assert not os.path.exists(f"{fs.path}/host/step-0.npy")
