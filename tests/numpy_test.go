package tests

import (
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestNumPy reads and writes arrays in the directories of devices, and lets another process
// check each from the other side.
func TestNumPy(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	devices := []string{"host,size=128MiB", "sim:0,size=128MiB"}
	names := []string{"host", "sim0"}
	if kit.Missing("opencl") == nil {
		devices, names = append(devices, "opencl:0,size=128MiB"), append(names, "ocl0")
	}
	m := mnt.Mount(t, mnt.Options{Devices: devices})
	for i, device := range names {
		t.Run(device, func(t *testing.T) {
			runScript(t, m.Path(device), numpyScript, "PYTHON="+kit.Python(), "TMP="+t.TempDir(), "OTHER="+m.Path(names[(i+1)%len(names)]))
		})
	}
}

// numpyScript checks each content from both sides: what NumPy wrote by plain reads of another
// process, and what that wrote by NumPy.
const numpyScript = `
	cat >"$TMP"/t.py <<-'END'
	import os, subprocess, sys
	import numpy as np
	tmp, other = os.environ["TMP"], os.environ["OTHER"]
	rng = np.random.default_rng(int.from_bytes(os.urandom(8), "little"))
	def bytes_of(path): return subprocess.run(["cat", path], capture_output=True, check=True).stdout
	def elsewhere(code, *args): subprocess.run([sys.executable, "-c", "import numpy as np, sys; " + code, *args], check=True)

	for n, dtype in enumerate(["f4", "f8", "i2", "u1", "c8", ">i4", "?"]):
	    a = rng.integers(0, 256, (37, 1009, 5), dtype="u1").astype(dtype)
	    np.save("a.npy", a); np.save(tmp + "/a.npy", a)
	    assert bytes_of("a.npy") == open(tmp + "/a.npy", "rb").read()
	    b = np.load("a.npy"); assert b.dtype == a.dtype and np.array_equal(a, b)
	    subprocess.run(["cp", tmp + "/a.npy", "b.npy"], check=True)
	    assert np.array_equal(np.load("b.npy"), a)
	    a.tofile("raw"); assert bytes_of("raw") == a.tobytes()
	    assert np.array_equal(np.fromfile("raw", dtype=a.dtype).reshape(a.shape), a)
	    assert np.array_equal(np.fromfile("raw", dtype=a.dtype, offset=1009 * a.itemsize, count=100), a.ravel()[1009:1109])

	a = rng.standard_normal((1024, 1024), dtype="f4"); np.save("m.npy", a)
	m = np.load("m.npy", mmap_mode="r+"); assert np.array_equal(m, a)
	m[17, :] = a[17, :] = 17.5; m[1023, 1023] = a[1023, 1023] = -1; m[::100, ::97] *= 2; a[::100, ::97] *= 2; m.flush()
	np.save(tmp + "/m.npy", a); assert bytes_of("m.npy") == open(tmp + "/m.npy", "rb").read()
	elsewhere("m = np.load(sys.argv[1], mmap_mode='r'); assert m[17, 5] == 17.5 and m[1023, 1023] == -1", "m.npy")
	elsewhere("m = np.load(sys.argv[1], mmap_mode='r+'); m[3, 3] = 33; m.flush()", "m.npy")
	assert m[3, 3] == 33 and np.load("m.npy")[3, 3] == 33
	c = np.load("m.npy", mmap_mode="c"); c[0, 0] = 99; assert np.load("m.npy")[0, 0] != 99
	del m, c
	w = np.lib.format.open_memmap("w.npy", mode="w+", dtype="f8", shape=(500, 300))
	assert not w.any(); w[:] = np.arange(150000).reshape(500, 300); w.flush(); del w
	assert np.array_equal(np.load("w.npy").ravel(), np.arange(150000.0))
	r = np.memmap("r", dtype="u2", mode="w+", offset=4096 * 3, shape=(100000,)); r[:] = np.arange(100000) % 65521; r.flush()
	assert bytes_of("r") == bytes(4096 * 3) + (np.arange(100000) % 65521).astype("u2").tobytes(); del r

	subprocess.run(["mv", "m.npy", other + "/m.npy"], check=True); a[3, 3] = 33
	assert np.array_equal(np.load(other + "/m.npy"), a) and not os.path.exists("m.npy")
	np.savez("z.npz", a=a, b=np.arange(10)); z = np.load("z.npz"); assert np.array_equal(z["a"], a)
	np.savez_compressed("z.npz", a=a); assert np.array_equal(np.load("z.npz")["a"], a)
	np.savetxt("t.txt", a[:20, :20]); assert np.allclose(np.loadtxt("t.txt"), a[:20, :20])
	with open("many.npy", "wb") as f:
	    for i in range(5): np.save(f, np.full(i * 1000, i))
	with open("many.npy", "rb") as f:
	    for i in range(5): assert np.array_equal(np.load(f), np.full(i * 1000, i))
	for d in (".", other):
	    for n in os.listdir(d): os.remove(os.path.join(d, n))
	END
	"$PYTHON" "$TMP"/t.py`
