package tests

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestNumPyOverSharedMemory runs the example of docs/semantics.md: an array of another program
// is a file, and a file is an array, without a copy.
func TestNumPyOverSharedMemory(t *testing.T) {
	kit.Require(t, "numpy", "tool:getfattr", "tool:setfattr")
	onBoth(t, func(t *testing.T, p place) {
		runScript(t, p.dir, numpyShareScript, "PYTHON="+kit.Python(), "TMP="+t.TempDir(), "FAMILY="+familyOf(p.name))
	})
}

const numpyShareScript = `
	cat >"$TMP"/owner.py <<-'END'
	import json, mmap, os, sys
	import numpy as np
	a = np.random.default_rng(7).standard_normal((128, 1024), dtype="f4")
	fd = os.memfd_create("tensor"); os.ftruncate(fd, a.nbytes)
	shared = np.ndarray(a.shape, a.dtype, mmap.mmap(fd, a.nbytes)); shared[:] = a
	piece = {"kind": "memfd", "fd": fd, "size": a.nbytes}
	open("live", "wb").close()
	os.setxattr("live", "user.hmc.bind", json.dumps({"family": os.environ["FAMILY"], "pid": os.getpid(),
	    "dtype": "float32", "shape": "128,1024", "pieces": [piece]}).encode())
	print("bound", flush=True)
	for line in sys.stdin:
	    if line == "store\n": shared[5, :] = 55; print("stored", flush=True)
	    if line == "look\n": print("seen", float(shared[6, 7]), flush=True)
	END
	cat >"$TMP"/user.py <<-'END'
	import json, os, subprocess, sys
	import numpy as np
	a = np.random.default_rng(7).standard_normal((128, 1024), dtype="f4")
	owner = subprocess.Popen([sys.executable, os.environ["TMP"] + "/owner.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
	def ask(word): owner.stdin.write(word + "\n"); owner.stdin.flush(); return owner.stdout.readline().split()
	assert owner.stdout.readline() == "bound\n"
	assert os.getxattr("live", "user.hmc.shape") == b"128,1024" and os.getxattr("live", "user.hmc.state") == b"bound"
	assert json.loads(os.getxattr("live", "user.hmc.bind"))["pid"] == owner.pid
	def now(): return np.fromfile("live", dtype="f4").reshape(128, 1024)
	assert np.array_equal(now(), a)
	assert ask("store") == ["stored"]; a[5, :] = 55; assert np.array_equal(now(), a)
	with open("live", "r+b") as f: f.seek((6 * 1024 + 7) * 4); f.write(np.float32(67).tobytes())
	assert ask("look") == ["seen", "67.0"]; a[6, 7] = 67
	subprocess.run(["cp", "live", "copy"], check=True)
	owner.stdin.close(); owner.wait()
	while os.getxattr("live", "user.hmc.state") == b"bound": os.sched_yield()
	try: open("live", "rb").read(); assert False, "the owner has ended"
	except OSError as e: assert e.errno == 5, e
	assert np.array_equal(np.fromfile("copy", dtype="f4").reshape(128, 1024), a)

	h = json.loads(os.getxattr("copy", "user.hmc.handle"))
	m = np.memmap(h["pieces"][0]["path"], dtype="f4", mode="r+", offset=h["pieces"][0]["offset"], shape=(128, 1024))
	assert np.array_equal(m, a)
	m[9, :] = 99
	assert (np.fromfile("copy", dtype="f4").reshape(128, 1024)[9] == 99).all()
	with open("copy", "r+b") as f: f.write(np.float32(11).tobytes())
	assert m[0, 0] == 11
	END
	"$PYTHON" "$TMP"/user.py
	getfattr -d -m - copy >"$TMP"/listed
	no grep -q -e handle -e bind "$TMP"/listed
	getfattr --only-values -n user.hmc.handle copy | grep -q memfd
	no truncate -s 0 copy
	setfattr -x user.hmc.handle copy
	truncate -s 0 copy
	rm live copy`

// Many pieces, up to the maximum size of an attribute.
func TestBindManyPieces(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n, pieces = 4<<20 + 4096, 1024
		o := newMemOwner(t, 0, 1, n)
		var list []string
		var want []byte
		for i := range pieces {
			off := (i * 2687 % pieces) * 4096
			list = append(list, o.piece(off+i%7, 4096-i%11))
			want = append(want, o.bytes[off+i%7:][:4096-i%11]...)
		}
		f := p.path("f")
		value := o.value(familyOf(p.name), list...)
		bindFile(t, f, value)
		got, err := os.ReadFile(f)
		must(t, err)
		if i := kit.FirstDiff(got, want); i >= 0 {
			t.Errorf("byte %d of %d is wrong", i, len(want))
		}
		text := mustXattr(t, f, bindXattr)
		if m, perr := share.Parse([]byte(text)); perr != nil || len(m.Pieces) != pieces {
			t.Errorf("bound to %d pieces, %v", len(m.Pieces), perr)
		}
		must(t, os.WriteFile(p.path("g"), nil, 0o644))
		padded := append([]byte(value), make([]byte, 64<<10-len(value))...)
		for i := len(value); i < len(padded); i++ {
			padded[i] = ' '
		}
		must(t, unix.Setxattr(p.path("g"), bindXattr, padded, 0))
		p.m.Kill()
		p.m.Start()
		got, err = os.ReadFile(f)
		must(t, err)
		if i := kit.FirstDiff(got, want); i >= 0 {
			t.Errorf("bound again, byte %d is wrong", i)
		}
	})
}

// An export ends with the daemon: host memory survives, device memory is lost as always.
func TestExportAfterADeath(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 1 << 20
		f := p.path("f")
		create(t, f, 1, n)
		_, view := exportFile(t, f)
		kit.FillAt(view, 2, 0)
		p.m.Kill()
		p.m.Start()
		if i := kit.DiffAt(view, 2, 0); i >= 0 {
			t.Errorf("byte %d is gone for who has it mapped", i)
		}
		if p.name != "host" {
			_, err := os.ReadFile(f)
			wantErrno(t, err, unix.EIO)
			return
		}
		wantContent(t, f, 2, n)
		must(t, unix.Truncate(f, 10))
	})
}

// A clean unmount releases everything, with --keep and without.
func TestUnmountWithSharedMemory(t *testing.T) {
	for _, extra := range [][]string{nil, {"--keep"}} {
		kit.Check(t)
		m := mnt.Mount(t, mnt.Options{Extra: extra})
		o := newMemOwner(t, 0, 1, 4096)
		for _, name := range []string{"host", "sim0"} {
			bindFile(t, m.Path(name, "bound"), o.value(familyOf(name), o.piece(0, 4096)))
			create(t, m.Path(name, "exported"), 2, 4096)
			exportFile(t, m.Path(name, "exported"))
		}
		_, err := m.Run("umount", m.Dir)
		must(t, err)
		m.Start()
		_, err = os.Lstat(m.Path("sim0", "bound"))
		if kept := err == nil; kept != (extra != nil) {
			t.Errorf("with %q: %v", extra, err)
		}
		if extra != nil {
			wantContent(t, m.Path("sim0", "bound"), 1, 4096)
			wantContent(t, m.Path("host", "bound"), 1, 4096)
			wantContent(t, m.Path("host", "exported"), 2, 4096)
		}
		if kit.DiffAt(o.bytes, 1, 0) >= 0 {
			t.Error("the owner's bytes have changed")
		}
	}
}
