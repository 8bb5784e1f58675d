package tests

import (
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// viewDevices are a device of each way to read, by their specs and names.
func viewDevices() (specs, names []string) {
	specs = []string{"host,size=192MiB", "sim:0,size=192MiB", "sim:1,size=192MiB,mapped=true"}
	names = []string{"host", "sim0", "sim1"}
	if kit.Missing("opencl") == nil {
		specs, names = append(specs, "opencl:0,size=192MiB"), append(names, "ocl0")
	}
	return specs, names
}

// TestViews has NumPy and the usual tools look at tensors through views.
func TestViews(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy", "tool:tar", "tool:getfattr")
	specs, names := viewDevices()
	m := mnt.Mount(t, mnt.Options{Devices: specs})
	for i, device := range names {
		t.Run(device, func(t *testing.T) {
			runScript(t, m.Path(device), viewScript, "PYTHON="+kit.Python(), "TMP="+t.TempDir(), "OTHER="+m.Path(names[(i+1)%len(names)]))
		})
	}
}

// viewPrelude makes safetensors files without the library.
const viewPrelude = `
	cat >"$TMP"/st.py <<-'END'
	import errno, json, os, struct, subprocess, sys
	import numpy as np
	tmp, other = os.environ["TMP"], os.environ.get("OTHER")
	rng = np.random.default_rng(int.from_bytes(os.urandom(8), "little"))
	NUMPY = {"BOOL": "|b1", "I8": "|i1", "U8": "|u1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "I32": "<i4", "U32": "<u4",
	    "F32": "<f4", "I64": "<i8", "U64": "<u8", "F64": "<f8", "C64": "<c8", "BF16": "<V2", "F8_E4M3": "|V1", "F8_E5M2": "|V1", "F8_E8M0": "|V1"}
	def header(tensors, metadata=None, pad=8):
	    head, off = {}, 0
	    if metadata: head["__metadata__"] = metadata
	    for name, (dtype, a) in tensors.items():
	        head[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [off, off + a.nbytes]}; off += a.nbytes
	    text = json.dumps(head).encode(); text += b" " * (-len(text) % pad)
	    return struct.pack("<Q", len(text)) + text
	def save(path, tensors, **more):
	    with open(path, "wb") as f:
	        f.write(header(tensors, **more))
	        for dtype, a in tensors.values(): f.write(a.tobytes())
	def random(dtype, *shape):
	    n = int(np.prod(shape, dtype="i8")) * np.dtype(NUMPY[dtype]).itemsize
	    raw = rng.integers(0, 2 if dtype == "BOOL" else 256, n, dtype="u1")
	    return raw.view(NUMPY[dtype]).reshape(shape)
	def fails(want, fn, *args, **more):
	    try: fn(*args, **more)
	    except OSError as e: assert e.errno == want, (errno.errorcode[e.errno], errno.errorcode[want], fn, args)
	    else: raise AssertionError("%s%r does not fail" % (fn, args))
	def same(a, b): assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), (a.dtype, b.dtype, a.shape, b.shape)
	def attr(path, name): return os.getxattr(path, "user.hmc." + name).decode()
	END
	run() { PYTHONPATH="$TMP" PYTHONDONTWRITEBYTECODE=1 "$PYTHON" -W error -W ignore::ResourceWarning "$TMP"/t.py; }`

const viewScript = viewPrelude + `
	cat >"$TMP"/t.py <<-'END'
	from st import *
	device = os.path.basename(os.getcwd())
	want = {"x%d/%s" % (i, d) if i % 2 else d: (d, random(d, 3, i + 1, 5)) for i, d in enumerate(NUMPY)}
	want |= {"scalar": ("F32", random("F32")), "none": ("F32", random("F32", 0, 4)), "big": ("F32", random("F32", 1031, 4099)),
	    "h/0/attn.weight": ("BF16", random("BF16", 1013, 777)), "h/0/attn.bias": ("I8", random("I8", 3)), "ä ö": ("U8", random("U8", 70001))}
	for pad in (8, 1):
	    save("m.safetensors", want, metadata={"format": "pt"}, pad=pad)
	    v = "m.safetensors.tensors/"
	    assert "m.safetensors.tensors" not in os.listdir(".")
	    for name, (dtype, a) in want.items():
	        p = v + name + ".npy"
	        same(np.load(p), a)
	        same(np.asarray(np.load(p, mmap_mode="r")), a)
	        assert attr(p, "shape") == ",".join(map(str, a.shape)) and attr(p, "device") == device and attr(p, "state") == "live"
	        assert attr(p, "dtype") == {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"}.get(dtype) or np.dtype(NUMPY[dtype]).name == attr(p, "dtype"), (name, attr(p, "dtype"))
	        assert os.path.getsize(p) % 64 == a.nbytes % 64
	    whole = open(v + "big.npy", "rb").read()
	    assert len(whole) == os.path.getsize(v + "big.npy") and whole[128:] == want["big"][1].tobytes()
	    with open(v + "big.npy", "rb", buffering=0) as f:
	        for off in [0, 1, 100, 127, 128, 129, 4095, 65537, 1 << 20, (1 << 20) + 3, len(whole) - 1, len(whole), len(whole) + 5]:
	            for n in [1, 7, 128, 4096, 70001, 1 << 20, (1 << 20) + 1, 3 << 20]:
	                assert os.pread(f.fileno(), n, off) == whole[off:off + n], (off, n)
	        assert os.lseek(f.fileno(), 5, os.SEEK_DATA) == 5 and os.lseek(f.fileno(), 0, os.SEEK_HOLE) == len(whole)
	        fails(errno.ENXIO, os.lseek, f.fileno(), len(whole), os.SEEK_DATA)
	    with open(v + "big.npy", "rb") as f:  # unbuffered by the map, read one after the other
	        got = b""
	        while part := f.read(33333): got += part
	        assert got == whole
	tree = sorted(os.path.join(d, f)[len(v):-4] for d, _, files in os.walk(v) for f in files)
	assert tree == sorted(want), (tree, sorted(want))
	for args in (["ls", "-lR", v], ["find", v, "-type", "f", "-size", "+1k"], ["tar", "cf", tmp + "/v.tar", v], ["cp", "-r", v, tmp + "/out"], ["cp", "-r", v, other + "/out"]):
	    subprocess.run(args, check=True, stdout=subprocess.DEVNULL)
	subprocess.run(["tar", "xf", tmp + "/v.tar", "-C", tmp], check=True)
	for name, (_, a) in want.items():
	    for d in (tmp + "/out/", tmp + "/" + v, other + "/out/"): same(np.load(d + name + ".npy"), a)

	# Facts that the view has of its file, and nobody changes.
	os.utime("m.safetensors", ns=(10**18, 10**18 + 123456789)); os.chmod("m.safetensors", 0o640)
	s, p, d = os.stat("m.safetensors"), os.stat(v + "big.npy"), os.stat(v)
	assert p.st_mtime_ns == s.st_mtime_ns == d.st_mtime_ns and (p.st_uid, p.st_gid) == (s.st_uid, s.st_gid)
	assert p.st_mode == 0o100440 and d.st_mode == 0o040550 and p.st_size == len(whole) and p.st_nlink == 1 and p.st_blocks * 512 >= p.st_size
	assert [e.inode() == os.stat(e.path).st_ino for e in os.scandir(v)].count(False) == 0
	assert os.path.realpath(v + "h/0/../../big.npy") == os.path.realpath(v + "big.npy") and os.path.samefile(v + "..", ".") and os.path.samefile(v + "h/..", v)
	assert os.statvfs(v + "big.npy").f_blocks == os.statvfs("m.safetensors").f_blocks
	fails(errno.ENOENT, os.stat, v + "nothing.npy"); fails(errno.ENOENT, os.stat, v + "h/9/x"); fails(errno.ENOTDIR, os.stat, v + "big.npy/x")
	for path in (v + "big.npy", v + "h"):
	    for fn in (lambda p: os.chmod(p, 0o777), lambda p: os.chown(p, 1, 1), os.utime, lambda p: os.rename(p, "away"),
	        lambda p: os.setxattr(p, "user.a", b"1"), lambda p: os.setxattr(p, "user.hmc.dtype", b"int8"), lambda p: os.removexattr(p, "user.hmc.dtype")):
	        fails(errno.EROFS, fn, path)
	for fn in (lambda: open(v + "big.npy", "r+b"), lambda: open(v + "new", "wb"), lambda: os.truncate(v + "big.npy", 0), lambda: os.unlink(v + "big.npy"),
	    lambda: os.mkdir(v + "d"), lambda: os.symlink("a", v + "l"), lambda: os.link(v + "big.npy", "l"), lambda: os.link("m.safetensors", v + "l"), lambda: os.rmdir(v + "h"),
	    lambda: os.rename("m.safetensors", v + "m"), lambda: os.rmdir(v[:-1]), lambda: os.rename(v[:-1], "away"), lambda: os.mknod(v + "n")):
	    fails(errno.EROFS, fn)
	assert os.listxattr(v) == [] and "user.hmc.dtype" in os.listxattr(v + "big.npy")
	fails(errno.ENODATA, os.getxattr, v + "big.npy", "user.hmc.key"); fails(errno.ENODATA, os.getxattr, v, "user.hmc.dtype")

	# A .npy file has a view of one.
	for n, dtype in enumerate(["f4", ">f8", "?", "c16", "S7", "U3", "<M8[ns]", "V3"]):
	    a = rng.integers(0, 2, 4 * 3 * 16 * 12, dtype="u1").tobytes(); a = np.frombuffer(a, dtype=dtype, count=24).reshape(4, 6)
	    if n % 2: a = np.asfortranarray(a)
	    np.save("a.npy", a); p = "a.npy.tensors/a.npy"
	    assert os.listdir("a.npy.tensors") == ["a.npy"]
	    b = np.load(p); same(b, a); assert b.flags.f_contiguous == a.flags.f_contiguous
	    assert attr(p, "shape") == "4,6" == attr("a.npy", "shape") and attr("a.npy", "dtype") == attr(p, "dtype"), dtype
	    assert attr(p, "dtype") == {0: "float32", 1: ">f8", 2: "bool", 3: "complex128"}.get(n, a.dtype.str), attr(p, "dtype")
	os.link("a.npy", "b.npy"); assert os.listdir("b.npy.tensors") == ["b.npy"]; same(np.load("b.npy.tensors/b.npy"), a)
	os.rename("b.npy", "c.npy"); fails(errno.ENOENT, os.stat, "b.npy.tensors"); same(np.load("c.npy.tensors/c.npy"), a)

	# What is really there goes before a view; a view comes and goes with its file.
	os.mkdir("r.npy.tensors"); np.save("r.npy", a); assert os.listdir("r.npy.tensors") == []; os.mkdir("r.npy.tensors/mine"); os.rmdir("r.npy.tensors/mine")
	os.rmdir("r.npy.tensors"); assert os.listdir("r.npy.tensors") == ["r.npy"]; fails(errno.EEXIST, os.mkdir, "r.npy.tensors")
	os.unlink("r.npy"); fails(errno.ENOENT, os.listdir, "r.npy.tensors"); fails(errno.ENOENT, os.listdir, "never.npy.tensors")
	np.save("never.npy", a); assert os.listdir("never.npy.tensors") == ["never.npy"]
	os.mkdir("dir.npy"); fails(errno.ENOENT, os.listdir, "dir.npy.tensors")
	END
	run
	rm -rf ./* "$OTHER"/out`
