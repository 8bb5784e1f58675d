package tests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/tensors"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestViewsOfHostileFiles checks that the views of files with false headers are refused and
// logged once, and that the files are otherwise unaffected.
func TestViewsOfHostileFiles(t *testing.T) {
	m := onViewDevices(t, hostileScript)
	_, names := viewDevices()
	const each = 26 // the number of malformed files that the script creates on each device
	m.Umount()
	log := m.Log()
	got := strings.Count(log, "malformed file")
	// Equal warnings after the first are only counted.
	for _, more := range regexp.MustCompile(`"(\d+) more like this`).FindAllStringSubmatch(log, -1) {
		n, err := strconv.Atoi(more[1])
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if got != each*len(names) {
		t.Errorf("%d warnings of malformed files, want one of each of %d", got, each*len(names))
	}
}

const hostileScript = viewPrelude + `
	cat >"$TMP"/t.py <<-'END'
	from st import *
	def raw(text, data=b"", n=None): return struct.pack("<Q", len(text) if n is None else n) + text.encode() + data
	def one(name, shape=[4], offsets=[0, 4], dtype="U8"): return json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": offsets}})
	def npy(text, data=b"", version=1): return b"\x93NUMPY" + bytes([version, 0]) + (struct.pack("<H", len(text)) if version == 1 else struct.pack("<I", len(text))) + text.encode() + data
	D = b"abcd"
	files = {"%d.safetensors" % i: c for i, c in enumerate([
	    b"", b"short", raw("{}", n=100_000_001), raw("{}", n=2**63), raw("{}", n=2**64 - 1), raw("{}", n=3), raw("[]"), raw('{"a":', D),
	    raw(one("../../etc/passwd"), D), raw(one("/etc/passwd"), D), raw(one("a//b"), D), raw(one("a\0b"), D), raw(one("n" * 252), D), raw(one("d/" * 3000 + "n"), D),
	    raw(one("a", [5]), D), raw(one("a", [-4]), D), raw(one("a", [2**62, 8], [0, 4]), D), raw(one("a", [4], [1, 5]), D), raw(one("a", [4], [0, 2**40]), D),
	    raw(one("a")[:-1] + ", " + one("b")[1:], D), raw(one("a")[:-1] + ", " + one("a")[1:], D), raw("[" * 1000000), raw(one("a") + " x", D)])}
	files |= {"a.npy": npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", D), "b.npy": npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", D),
	    "c.npy": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}", D, 2)}
	assert len(files) == 26
	for name, content in files.items():
	    with open(name, "wb") as f: f.write(content)
	    for _ in range(3):
	        v = name + ".tensors"
	        fails(errno.EIO, os.listdir, v); fails(errno.EIO, os.stat, v + "/a.npy"); fails(errno.EIO, open, v + "/../" + v + "/a.npy"); fails(errno.EIO, os.stat, v + "/etc")
	        assert os.stat(v).st_mode & 0o7777 == 0o555 and open(name, "rb").read() == content and os.listdir(".").count(v) == 0
	        assert "user.hmc.dtype" not in os.listxattr(name); fails(errno.ENODATA, os.getxattr, name, "user.hmc.shape")
	    os.rename(name, "x"); os.rename("x", name)
	END
	run
	rm -rf ./*`

// TestViewsOfManyTensors lists and opens the view of a header of very many tensors, and checks
// that nothing of it is kept once the kernel has forgotten it.
func TestViewsOfManyTensors(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}})
	before := m.Status().Memory
	tensors, loads := kit.Rounds(5000, 5000, 100_000), kit.Rounds(500, 500, 2000)
	devices := []string{"host", "sim0"}
	for _, device := range devices {
		t.Run(device, func(t *testing.T) {
			runScript(t, m.Path(device), manyTensorsScript, "PYTHON="+kit.Python(), "TMP="+t.TempDir(), fmt.Sprint("TENSORS=", tensors), fmt.Sprint("LOADS=", loads))
		})
	}
	f := open(t, m.Path("sim0", "m.safetensors.tensors", "layer", "7", "w.npy"), os.O_RDONLY)
	if n, lookups := m.Stats().Mount.ViewNodes, count(m, "lookup"); n == 0 || lookups < uint64(loads*len(devices)) {
		t.Errorf("%d nodes of views with one open, after %d lookups: the test proves nothing", n, lookups)
	}
	must(t, f.Close())
	kit.Eventually(t, mntPatience, func() error {
		if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0); err != nil {
			return err
		}
		if n := m.Stats().Mount.ViewNodes; n != 0 {
			return fmt.Errorf("%d nodes of views are left", n)
		}
		return nil
	})
	t.Logf("daemon's memory before %+v, after %+v", before, m.Status().Memory)
	// A forgotten name is found again.
	runScript(t, m.Path("sim0"), fmt.Sprintf("stat -c %%s m.safetensors.tensors/layer/%d/w.npy", tensors-1)+`; rm m.safetensors; no stat m.safetensors.tensors`)
	var st unix.Stat_t
	if err := unix.Stat(m.Path("sim0", "m.safetensors.tensors", "x"), &st); !errors.Is(err, unix.ENOENT) {
		t.Errorf("view of a removed file: %v", err)
	}
}

// count returns the number of requests of a kind that the kernel has made.
func count(m *mnt.M, operation string) uint64 {
	for _, row := range m.Stats().Mount.Operations {
		if row.Name == operation {
			return row.Count
		}
	}
	return 0
}

const manyTensorsScript = viewPrelude + `
	cat >"$TMP"/t.py <<-'END'
	from st import *
	n = int(os.environ["TENSORS"]); data = rng.integers(0, 256, 3 * n, dtype="u1")
	text = json.dumps({"layer/%d/w" % i: {"dtype": "U8", "shape": [3], "data_offsets": [3 * i, 3 * i + 3]} for i in range(n)}).encode()
	with open("m.safetensors", "wb") as f: f.write(struct.pack("<Q", len(text)) + text + data.tobytes())
	v = "m.safetensors.tensors/"
	assert os.listdir(v) == ["layer"] and sorted(map(int, os.listdir(v + "layer"))) == list(range(n))
	for i in map(int, rng.integers(0, n, int(os.environ["LOADS"]))):
	    assert os.listdir(v + "layer/%d" % i) == ["w.npy"]
	    same(np.load(v + "layer/%d/w.npy" % i), data[3 * i:3 * i + 3])
	END
	run`

// TestViewsAndUsers checks that a view is open to those users that may read its file.
func TestViewsAndUsers(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy", "tool:setpriv", "tool:setfattr")
	m := mnt.Mount(t, mnt.Options{AllowOther: true})
	for _, device := range []string{"host", "sim0"} {
		t.Run(device, func(t *testing.T) {
			runScript(t, m.Path(device), `
				"$PYTHON" -c 'import numpy as np; np.save("a.npy", np.arange(1000))'
				other() { setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"; }
				chmod 644 a.npy; other cmp a.npy.tensors/a.npy a.npy; other ls a.npy.tensors
				[ "$(stat -c '%a %u' a.npy.tensors/a.npy a.npy.tensors | tr '\n' ' ')" = "644 0 555 0 " ]
				key=user.hmc.key; mine=$(basename "$PWD")-key
				no other setfattr -n $key -v "$mine" a.npy.tensors/a.npy
				chmod 600 a.npy
				no other cat a.npy.tensors/a.npy; no other ls a.npy.tensors; other stat -c %a a.npy.tensors
				chown 65534 a.npy; other cat a.npy.tensors/a.npy >/dev/null
				other setfattr -n $key -v "$mine" a.npy.tensors/a.npy
				[ "$(readlink ../keys/"$mine")" = "../$(basename "$PWD")/a.npy.tensors/a.npy" ]
				no other touch a.npy.tensors/a.npy; no other sh -c 'echo >>a.npy.tensors/a.npy'
				mkdir shut; mv a.npy shut/; chmod 700 shut; no other cat shut/a.npy.tensors/a.npy
				rm -r shut`, "PYTHON="+kit.Python())
		})
	}
}

// TestViewsOfLostFiles checks that the view of a file whose device memory is lost can't be
// read.
func TestViewsOfLostFiles(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	m := mnt.Mount(t, mnt.Options{})
	for _, device := range []string{"host", "sim0"} {
		runScript(t, m.Path(device), `"$PYTHON" -c 'import numpy as np; np.save("a.npy", np.arange(1000))'`, "PYTHON="+kit.Python())
	}
	m.Kill()
	m.Start()
	runScript(t, m.Path("host"), `cmp a.npy.tensors/a.npy a.npy; [ "$(getfattr --only-values -n user.hmc.shape a.npy)" = 1000 ]`)
	var st unix.Stat_t
	must(t, unix.Stat(m.Path("sim0", "a.npy.tensors"), &st))
	wantErrno(t, unix.Stat(m.Path("sim0", "a.npy.tensors", "a.npy"), &st), unix.EIO)
	_, err := os.ReadDir(m.Path("sim0", "a.npy.tensors"))
	wantErrno(t, err, unix.EIO)
	wantNoXattr(t, m.Path("sim0", "a.npy"), "user.hmc.dtype")
	wantXattr(t, m.Path("sim0", "a.npy"), "user.hmc.state", "lost")
}

// TestViewsOfBoundMemory has a tensor in memory that another process owns and changes without
// notice, including its header.
func TestViewsOfBoundMemory(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		const n = 1<<20 + 77
		file, view := p.path("x.npy"), p.path("x.npy.tensors", "x.npy")
		header := npyHeader(t, n)
		size := len(header) + n
		room := (size + 4095) &^ 4095
		o := newMemOwner(t, 0, 1, room)
		put := func(header []byte, seed uint64) {
			copy(o.bytes, header)
			kit.FillAt(o.bytes[len(header):size], seed, 0)
		}
		put(header, 1)
		bindFile(t, file, o.value(familyOf(p.name), o.piece(0, room)))
		h := open(t, view, os.O_RDONLY)
		got := make([]byte, size+10)
		for seed := uint64(2); seed < 6; seed++ {
			put(header, seed)
			k, err := h.ReadAt(got, 0)
			if k != size || !errors.Is(err, io.EOF) || !bytes.Equal(got[:len(header)], header) {
				t.Fatalf("%d bytes of %d, %v", k, size, err)
			}
			if i := kit.DiffAt(got[len(header):size], seed, 0); i >= 0 {
				t.Fatalf("byte %d is not what the owner has stored", i)
			}
		}
		wantXattr(t, view, "user.hmc.state", "bound")
		wantXattr(t, view, "user.hmc.shape", fmt.Sprint(n))
		put(npyHeader(t, n-10), 7)
		_, err := h.ReadAt(got, 0)
		wantErrno(t, err, unix.ESTALE)
		wantXattr(t, view, "user.hmc.shape", fmt.Sprint(n-10))
		data, err := os.ReadFile(view)
		if err != nil || len(data) != size-10 || kit.DiffAt(data[len(header):], 7, 0) >= 0 {
			t.Errorf("%d bytes of the new array, %v", len(data), err)
		}
	})
}

// npyHeader returns a header of n bytes.
func npyHeader(t *testing.T, n uint64) []byte {
	t.Helper()
	x := tensors.Tensor{Shape: []uint64{n}}
	var ok bool
	if x.Type, ok = tensors.TypeNamed("uint8"); !ok {
		t.Fatal("no uint8")
	}
	return x.Header()
}
