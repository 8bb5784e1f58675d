package tests

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// viewDevices returns the specs and names of one device for each way to read; with -short only
// those that differ most.
func viewDevices() (specs, names []string) {
	specs = []string{"host,size=192MiB", "sim:0,size=192MiB", "sim:1,size=192MiB,mapped=true"}
	names = []string{"host", "sim0", "sim1"}
	if testing.Short() {
		return specs[:2], names[:2]
	}
	if kit.Missing("opencl") == nil {
		specs, names = append(specs, "opencl:0,size=192MiB"), append(names, "ocl0")
	}
	return specs, names
}

// viewDevicesAndCard additionally returns a card of a vendor's library, whose memory the host
// can't map.
func viewDevicesAndCard(t *testing.T) (specs, names []string) {
	t.Helper()
	useStandInCards(t, "memory=268435456")
	specs, names = viewDevices()
	return append(specs, "cuda:0,size=192MiB"), append(names, "cuda0")
}

// onViewDevices runs a script in the directory of each of viewDevices.
func onViewDevices(t *testing.T, script string) *mnt.M {
	t.Helper()
	specs, names := viewDevices()
	return viewScriptOn(t, specs, names, script)
}

// viewScriptOn runs a script in the directory of each device; OTHER is the directory of the
// next device.
func viewScriptOn(t *testing.T, specs, names []string, script string) *mnt.M {
	t.Helper()
	kit.Check(t)
	kit.Require(t, "numpy")
	m := mnt.Mount(t, mnt.Options{Devices: specs})
	for i, device := range names {
		t.Run(device, func(t *testing.T) {
			other := m.Path(names[(i+1)%len(names)])
			// The large tensor has some 4.3 MiB, more than any call reads from within it; or 16 MiB.
			width := kit.Rounds(1099, 1099, 4099)
			runScript(t, m.Path(device), script, "PYTHON="+kit.Python(), "TMP="+t.TempDir(), "OTHER="+other, fmt.Sprint("WIDTH=", width))
		})
	}
	return m
}

// TestViews reads tensors through views with NumPy and common tools.
func TestViews(t *testing.T) {
	kit.Require(t, "tool:tar", "tool:getfattr")
	specs, names := viewDevicesAndCard(t)
	viewScriptOn(t, specs, names, viewScript)
}

// viewPrelude creates safetensors files without the library.
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
	def parts(a, n=1 << 16):  # small ones: a copy of all of it would be of new memory each time
	    a = np.ascontiguousarray(a).reshape(-1).view("u1")
	    return (a[i:i + n].tobytes() for i in range(0, a.size, n))
	def same(a, b): assert a.dtype == b.dtype and a.shape == b.shape and a.nbytes == b.nbytes and all(x == y for x, y in zip(parts(a), parts(b))), (a.dtype, b.dtype, a.shape, b.shape)
	def attr(path, name): return os.getxattr(path, "user.hmc." + name).decode()
	END
	run() { PYTHONPATH="$TMP" PYTHONDONTWRITEBYTECODE=1 "$PYTHON" -W error -W ignore::ResourceWarning "$TMP"/t.py; }`

const viewScript = viewPrelude + `
	cat >"$TMP"/t.py <<-'END'
	from st import *
	device = os.path.basename(os.getcwd())
	want = {"x%d/%s" % (i, d) if i % 2 else d: (d, random(d, 3, i + 1, 5)) for i, d in enumerate(NUMPY)}
	want |= {"scalar": ("F32", random("F32")), "none": ("F32", random("F32", 0, 4)), "big": ("F32", random("F32", 1031, int(os.environ["WIDTH"]))),
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
	        got = bytearray()
	        while part := f.read(33333): got += part
	        assert got == whole
	tree = sorted(os.path.join(d, f)[len(v):-4] for d, _, files in os.walk(v) for f in files)
	assert tree == sorted(want), (tree, sorted(want))
	files = lambda d: sorted(subprocess.run(["find", d, "-type", "f", "-printf", "%P\\n"], check=True, capture_output=True, text=True).stdout.split("\n")[:-1])
	assert files(v) == sorted(n + ".npy" for n in want), files(v)
	for args in (["ls", "-lR", v], ["find", v, "-type", "f", "-size", "+1k"], ["tar", "cf", tmp + "/v.tar", v], ["cp", "-r", v, tmp + "/out"], ["cp", "-r", v, other + "/out"]):
	    subprocess.run(args, check=True, stdout=subprocess.DEVNULL)
	subprocess.run(["tar", "xf", tmp + "/v.tar", "-C", tmp], check=True)
	for name, (_, a) in want.items():
	    for d in (tmp + "/out/", tmp + "/" + v, other + "/out/"): same(np.load(d + name + ".npy"), a)

	# Facts that the view has of its file, and nobody changes.
	os.utime("m.safetensors", ns=(10**18, 10**18 + 123456789)); os.chmod("m.safetensors", 0o640)
	s, p, d = os.stat("m.safetensors"), os.stat(v + "big.npy"), os.stat(v)
	assert p.st_mtime_ns == s.st_mtime_ns == d.st_mtime_ns and (p.st_uid, p.st_gid) == (s.st_uid, s.st_gid)
	assert p.st_mode == 0o100640 and d.st_mode == 0o040550 and p.st_size == len(whole) and p.st_nlink == 1 and p.st_blocks * 512 >= p.st_size
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

// TestViewsOfChangingFiles writes to files whose tensors are open and mapped.
func TestViewsOfChangingFiles(t *testing.T) {
	onViewDevices(t, changingViewScript)
}

const changingViewScript = viewPrelude + `
	cat >"$TMP"/t.py <<-'END'
	from st import *
	import mmap, time
	device = os.path.basename(os.getcwd())
	def eventually(fn):
	    for _ in range(2000):
	        if fn(): return
	        time.sleep(0.01)
	    raise AssertionError("not within 20 s")
	a, b = random("F32", 700, 1001), random("BF16", 33, 44)
	save("m.safetensors", {"b": ("BF16", b), "a": ("F32", a)})
	v, data = "m.safetensors.tensors/", os.path.getsize("m.safetensors") - a.nbytes
	f = open(v + "a.npy", "rb", buffering=0); m = np.load(v + "a.npy", mmap_mode="r"); same(np.asarray(m), a)
	ino = os.fstat(f.fileno()).st_ino
	# Bytes that change where they are: what is open shows them.
	new = random("F32", 700, 1001)
	w = os.open("m.safetensors", os.O_RDWR); os.pwrite(w, new[300:].tobytes(), data + 4 * 1001 * 300); os.close(w)
	a[300:] = new[300:]
	assert os.pread(f.fileno(), 1 << 20, 128) == a.tobytes()[:1 << 20] and os.pread(f.fileno(), 1 << 24, 128 + (1 << 20)) == a.tobytes()[1 << 20:]
	eventually(lambda: np.array_equal(np.asarray(m).view("u4"), a.view("u4")))
	# A copy goes the way that a copy of the file goes.
	for dst in ("copy.npy", other + "/copy.npy"):
	    out = os.open(dst, os.O_RDWR | os.O_CREAT); n = 0
	    while k := os.copy_file_range(f.fileno(), out, 1 << 30, n, n): n += k
	    os.close(out); same(np.load(dst), a)
	    os.close(os.open("plain", os.O_CREAT | os.O_RDWR)); plain = other + "/plain" if "/" in dst else "plain"
	    subprocess.run(["cp", "m.safetensors", plain], check=True)
	    assert attr(dst, "path") == attr(plain, "path"), (attr(dst, "path"), attr(plain, "path"))
	    if device.startswith("sim") and "/" not in dst: assert attr(dst, "path").startswith("d2d")
	    os.unlink(plain)
	out = os.open("copy.npy", os.O_RDWR); assert os.copy_file_range(f.fileno(), out, 1000, 120, 77) and os.pread(out, 900, 77) == os.pread(f.fileno(), 900, 120); os.close(out)
	out = os.open("m.safetensors", os.O_RDWR); n = os.copy_file_range(f.fileno(), out, 1000, 201, data - b.nbytes)  # into its own file
	assert n and os.pread(out, n, data - b.nbytes) == os.pread(f.fileno(), n, 201); os.pwrite(out, b.tobytes(), data - b.nbytes); os.close(out)
	same(np.load(v + "a.npy"), a); same(np.load(v + "b.npy"), b)
	# Written anew with another layout: what is open is stale, a new open is right.
	c = random("F32", 5, 6)
	save("m.safetensors", {"c": ("F32", c), "a": ("F32", a), "b": ("BF16", b)})
	fails(errno.ESTALE, os.pread, f.fileno(), 10, 0); fails(errno.ESTALE, os.pread, f.fileno(), 10, 5000); fails(errno.ESTALE, os.fstat, f.fileno())
	assert sorted(os.listdir(v)) == ["a.npy", "b.npy", "c.npy"] and os.stat(v + "a.npy").st_ino != ino
	same(np.load(v + "a.npy"), a); same(np.load(v + "c.npy"), c)
	del m; f.close()
	# Renamed, and with another under the old name.
	f = open(v + "a.npy", "rb", buffering=0); os.rename("m.safetensors", "n.safetensors"); save("m.safetensors", {"x": ("F32", c)})
	assert os.listdir(v) == ["x.npy"] and os.pread(f.fileno(), 1 << 24, 128)[:1 << 19] == a.tobytes()[:1 << 19]
	same(np.load("n.safetensors.tensors/b.npy"), b)
	os.unlink("n.safetensors"); assert os.pread(f.fileno(), 100, 128) == a.tobytes()[:100]; f.close()
	# Replaced as programs do that write beside and rename.
	save("new", {"a": ("F32", c)}); os.replace("new", "m.safetensors"); same(np.load(v + "a.npy"), c); assert os.listdir(v) == ["a.npy"]
	# No tensors any more.
	with open("m.safetensors", "wb") as g: g.write(b"no tensors")
	fails(errno.EIO, os.listdir, v); fails(errno.EIO, os.stat, v + "a.npy"); os.stat(v); assert open("m.safetensors", "rb").read() == b"no tensors"
	# Growing by the tail of a map of the file itself.
	np.save("g.npy", np.zeros(100000, "f4")); g = np.load("g.npy", mmap_mode="r+"); h = np.load("g.npy.tensors/g.npy", mmap_mode="r")
	g[77777] = 5; g.flush(); assert np.load("g.npy.tensors/g.npy")[77777] == 5
	del g, h
	END
	run
	rm -rf ./* "$OTHER"/copy.npy`

// TestTensorAttributes checks that the attributes of files with one tensor come from their
// headers.
func TestTensorAttributes(t *testing.T) {
	onViewDevices(t, tensorAttributeScript)
}

const tensorAttributeScript = viewPrelude + `
	cat >"$TMP"/t.py <<-'END'
	from st import *
	def told(path, dtype, shape):
	    for n, want in (("dtype", dtype), ("shape", shape)):
	        if want is None: fails(errno.ENODATA, attr, path, n)
	        else: assert attr(path, n) == want, (path, n, attr(path, n))
	put = lambda path, name, value, flags=0: os.setxattr(path, "user.hmc." + name, value.encode(), flags)
	drop = lambda path, name: os.removexattr(path, "user.hmc." + name)
	a = random("F32", 4, 6)
	np.save("a.npy", a); told("a.npy", "float32", "4,6")
	np.save("a.npy", np.ones((2, 6), ">i2")); told("a.npy", ">i2", "2,6")
	np.save("a.npy", a[0, 0]); told("a.npy", "float32", "")
	with open("two.npy", "wb") as f: np.save(f, a); np.save(f, a)
	told("two.npy", None, None); same(np.load("two.npy.tensors/two.npy"), a)
	save("s.safetensors", {"w": ("BF16", random("BF16", 3, 5))}); told("s.safetensors", "bfloat16", "3,5")
	save("s.safetensors", {"w": ("BF16", random("BF16", 3, 5)), "x": ("U8", random("U8", 1))}); told("s.safetensors", None, None)
	# By the name that the file has.
	np.save("a.npy", a); os.rename("a.npy", "a"); told("a", None, None); os.rename("a", "b.npy"); told("b.npy", "float32", "4,6")
	subprocess.run(["cp", "b.npy", "c.npy"], check=True); told("c.npy", "float32", "4,6")
	# In a file that stops being one, what was told goes, and what was set stays.
	with open("c.npy", "r+b") as f: f.write(b"garbage")
	told("c.npy", None, None); put("c.npy", "dtype", "uint8"); told("c.npy", "uint8", None)
	np.save("d.npy", a); put("d.npy", "dtype", "int32"); told("d.npy", "int32", "4,6")
	with open("d.npy", "r+b") as f: f.write(b"garbage")
	told("d.npy", "int32", None)
	# What is set speaks of the tensor, blobs of the file.
	np.save("e.npy", a); size = os.path.getsize("e.npy")
	put("e.npy", "shape", "2,12"); told("e.npy", "float32", "2,12"); put("e.npy", "dtype", "int32"); told("e.npy", "int32", "2,12")
	fails(errno.EINVAL, put, "e.npy", "shape", "2,13"); fails(errno.EINVAL, put, "e.npy", "shape", str(size // 4)); fails(errno.EINVAL, put, "e.npy", "dtype", "int16")
	drop("e.npy", "shape"); told("e.npy", "int32", "4,6"); put("e.npy", "dtype", "float64"); told("e.npy", "float64", None); put("e.npy", "shape", "12"); told("e.npy", "float64", "12")
	drop("e.npy", "shape"); drop("e.npy", "dtype"); told("e.npy", "float32", "4,6"); fails(errno.EOPNOTSUPP, drop, "e.npy", "dtype")
	put("e.npy", "dtype", "uint32", os.XATTR_REPLACE); told("e.npy", "uint32", "4,6"); fails(errno.EINVAL, put, "e.npy", "dtype", "nonsense")
	put("e.npy", "blobs", "128,%d" % (size - 128)); fails(errno.EINVAL, put, "e.npy", "blobs", "96")
	put("e.npy", "dtype", "f4_nonsense"[:2]); put("e.npy", "shape", "192"); told("e.npy", "f4", "192")
	np.save("e.npy", a); told("e.npy", "float32", "4,6")  # cut to nothing: what was set goes too
	# Other files are as they were.
	open("raw", "wb").write(a.tobytes()); told("raw", None, None); put("raw", "dtype", "float32"); put("raw", "shape", "4,6"); told("raw", "float32", "4,6")
	f = open("u.npy", "wb"); np.save(f, a); f.flush(); os.unlink("u.npy"); assert os.getxattr(f.fileno(), "user.hmc.dtype") in (b"float32",) ; f.close()
	END
	run
	rm -rf ./*`

// TestViewsBesideWriter reads tensors while their file is rewritten repeatedly: all bytes read
// belong to the tensor whose header the reader got.
func TestViewsBesideWriter(t *testing.T) {
	writes := fmt.Sprintf("export WRITES=%d\n", kit.Rounds(50, 50, 150))
	onViewDevices(t, writes+besideWriterScript)
}

// besideWriterScript has a writer of two contents, in which the tensors have different
// offsets, types and lengths. The values of each depend on its name, its type and the index.
const besideWriterScript = viewPrelude + `
	cat >"$TMP"/t.py <<-'END'
	from st import *
	import threading, time
	def values(seed, dtype, *shape):
	    n = int(np.prod(shape)); x = (np.arange(n, dtype="u8") * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)) >> np.uint64(17)
	    return x.astype(NUMPY[dtype]).reshape(shape)
	contents = [{"a": ("U32", values(1, "U32", 300, 1001)), "b": ("U8", values(2, "U8", 70001))},
	    {"b": ("U16", values(3, "U16", 250, 999)), "c": ("U8", values(4, "U8", 5)), "a": ("U32", values(5, "U32", 77, 3001))}]
	images = [header(c) + b"".join(a.tobytes() for _, a in c.values()) for c in contents]
	stop, seen, stale = threading.Event(), [0, 0], [0]
	def read(how):
	    while not stop.is_set():
	        for name in ("a", "b"):
	            try: got = how("m.safetensors.tensors/" + name + ".npy")
	            except OSError as e:
	                assert e.errno in (errno.ESTALE, errno.EIO, errno.ENOENT), e; stale[0] += 1; continue
	            except (ValueError, EOFError): continue  # a file that was cut under NumPy's hands
	            for i, c in enumerate(contents):
	                want = c[name][1]
	                if got.dtype == want.dtype and got.shape == want.shape:
	                    assert np.array_equal(got, want), (name, i, np.flatnonzero(got.ravel() != want.ravel())[:9])
	                    seen[i] += 1; break
	            else: raise AssertionError((name, got.dtype, got.shape))
	def slowly(path):
	    with open(path, "rb", buffering=0) as f:
	        parts = []
	        while part := f.read(50021): parts.append(part)
	    import io; return np.load(io.BytesIO(b"".join(parts)))
	failed = []
	def guarded(how):
	    try: read(how)
	    except BaseException as e: failed.append(e); stop.set(); raise
	def write(image):  # whole by the time that it is valid: the header comes last
	    fd = os.open("m.safetensors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
	    head = 8 + struct.unpack("<Q", image[:8])[0]
	    os.pwrite(fd, image[head:], head); os.pwrite(fd, image[:head], 0); os.close(fd)
	write(images[0])
	threads = [threading.Thread(target=guarded, args=(how,)) for how in (np.load, np.load, slowly, slowly)]
	for t in threads: t.start()
	end, i = time.monotonic() + 120, 0
	while not failed and time.monotonic() < end and (i < int(os.environ["WRITES"]) or min(seen) < 20 or stale[0] == 0):
	    i += 1; write(images[i % 2]); time.sleep(0.002 * (i % 5))
	stop.set()
	for t in threads: t.join()
	assert not failed and min(seen) > 0, (failed, seen, stale)
	END
	run
	rm -rf ./*`
