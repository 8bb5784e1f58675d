package tests

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

func asErrno(err error) (syscall.Errno, bool) { return errors.AsType[syscall.Errno](err) }

func sum(data []byte) []byte {
	s := sha256.Sum256(data)
	return s[:8]
}

// filesScript is executed through the mount and through a session. H, S and T are directories of
// the devices host, sim0 and sim1; lines with an @ are alice's.
const filesScript = `
mkdir H/d 755
mkdir H/d 755
mkdir H/none/d 755
open H/d/a r
open H/d/a rw,creat 640
open H/d/a rw,creat,excl 640
open H/d/a r,dir
open H/d r,dir
open H/d rw
open H/d r,creat
write H/d/a w 1 0+100000
write H/d/a w 2 50000+3000000
write H/d/a w,append 3 0+777
write H/d/a r 3 0+777
write H/d/b w,creat 4 1048576+5
read H/d/a
read H/d/b
read H/d
stat H/d/a
stat H/d
ls H/d
ls H/d/a
ls H/none
truncate H/d/a 12345
truncate H/d 5
truncate H/d/none 5
truncate H/d/a 2000000
read H/d/a
open H/d/b w,trunc
stat H/d/b
ln H/d/a H/d/l
ln H/d H/e
ln H/d/a H/d/b
ln H/d/a S/l
stat H/d/a
symlink a H/d/s
symlink s H/d/s2
symlink ../d/a H/d/up
symlink loop H/d/loop
symlink nothing H/d/dangling
symlink . H/d/self
symlink a H/d/s
readlink H/d/s
readlink H/d/a
lstat H/d/s
stat H/d/s2
read H/d/up
read H/d/self/self/a
read H/d/loop
read H/d/dangling
open H/d/s r,nofollow
open H/d/dangling rw,creat 600
stat H/d/nothing
open H/d/a/x r
stat H/d/a/x
mkdir H/d/a/x 755
rm H/d/a/x
rm H/d
rm H/none
mv H/d/a H/d/m
mv H/d/a H/d/m
mv H/d/m S/m
read S/m
get S/m user.hmc.device
mv H/d H/d/e
mkdir H/f 755
mv H/f H/d
mv H/d/l H/f
mv H/f H/d/l
mv H/d T/d
mv S/m T/m
mv T/m H/d/m
read H/d/m
chmod H/d/m 600
chmod H/none 600
chown H/d/m 60001 60100
stat H/d/m
touch H/d/m 1000000000
stat H/d/m
set H/d/m user.mine value
get H/d/m user.mine
get H/d/m user.none
get H/d/m system.none
set H/d/m system.none x
set H/d/m user.hmc.device x
set H/d/m user.hmc.key k-M
get H/d/m user.hmc.key
unset H/d/m user.mine
unset H/d/m user.mine
unset H/d/m user.hmc.key
chmod H/d 755
chmod H/d/m 600
@read H/d/m
chown H/d/m 0 0
@read H/d/m
@open H/d/m w
@open H/d/m r,creat
@truncate H/d/m 5
@chmod H/d/m 666
@chown H/d/m 60001 60001
@touch H/d/m 5
@set H/d/m user.a b
@get H/d/m user.hmc.device
@rm H/d/m
@mv H/d/m H/d/n
@mkdir H/d/x 755
@open H/d/x w,creat
@ln H/d/m H/d/n
@symlink a H/d/y
@stat H/d/m
@ls H/d
chmod H/d/m 644
@read H/d/m
@open H/d/m r,trunc
chmod H/d 711
@ls H/d
@read H/d/m
@read H/d/none
chmod H/d 700
@read H/d/m
@stat H/d/m
@rm H/d/m
@mkdir H/d 755
chmod H/d 1777
@write H/d/mine w,creat 5 0+10
@stat H/d/mine
@rm H/d/m
@mv H/d/m H/d/n
@mv H/d/mine H/d/m
@mv H/d/mine H/d/mine2
@chmod H/d/mine2 4755
@stat H/d/mine2
@write H/d/mine2 w 6 0+10
@stat H/d/mine2
@chown H/d/mine2 60001 60100
@chown H/d/mine2 -1 60001
@chown H/d/mine2 0 -1
@set H/d user.a b
@set H/d/mine2 user.a b
@set H/d/mine2 trusted.a b
@rm H/d/mine2
@rm H/d
mkdir H/d/sub 777
chmod H/d/sub 777
@mv H/d/sub H/d/sub2
chown H/d/sub 60001 60001
@mv H/d/sub H/d/sub2
rm H/d/sub2
mkdir H/d/LONG 755
stat H/d/LONG
rm H/d/LONG1
write S/v w,creat 9 0+4096
mv S/v H/d/v
mv H/d/v S/v
open S/v rw
rm S/v
stat S/v
`

// TestFilesOfSession executes one script through the mount and through sessions of the same
// daemon, and compares every result and errno.
func TestFilesOfSession(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{AllowOther: true, Devices: []string{"host,size=64MiB", "sim:0,size=64MiB", "sim:1,size=64MiB,mapped=true"}})
	root := openSession(t, m)
	var others *client.Session
	mnt.AsUser(t, userAlice(), func() { others, _ = client.OpenSession(t.Context(), socketOf(m)) })
	if others == nil {
		t.Fatal("alice has no session")
	}
	defer func() { must(t, others.Close()) }()
	for _, device := range []string{"host", "sim0", "sim1"} {
		must(t, root.Files().Mkdir(device+"/k", 0o777))
		must(t, root.Files().Mkdir(device+"/s", 0o777))
	}
	t.Run("script", func(t *testing.T) { compareDoors(t, m, root, others) })
	t.Run("cached names", func(t *testing.T) { testCachedNames(t, m, root.Files()) })
	t.Run("mapped", func(t *testing.T) { testMapped(t, m, root.Files()) })
	t.Run("fstest", func(t *testing.T) { testFS(t, root.Files()) })
	t.Run("memory", func(t *testing.T) { testFileMemory(t, root) })
	t.Run("copy", func(t *testing.T) { testFileCopy(t, m, root.Files()) })
}

func openSession(t *testing.T, m *mnt.M) *client.Session {
	t.Helper()
	s, err := client.OpenSession(t.Context(), socketOf(m))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func compareDoors(t *testing.T, m *mnt.M, root, others *client.Session) {
	long := strings.Repeat("n", 255)
	of := func(dir string) *strings.Replacer {
		return strings.NewReplacer("H/", "host/"+dir+"/", "S/", "sim0/"+dir+"/", "T/", "sim1/"+dir+"/", "LONG", long, "-M", "-"+dir)
	}
	kernel, session := of("k"), of("s")
	for line := range strings.Lines(strings.TrimSpace(filesScript)) {
		line = strings.TrimSpace(line)
		text, asAlice := strings.CutPrefix(line, "@")
		var want, got string
		through := func(d door, line string) string {
			out, err := execute(d, line)
			return errnoWord(err) + " " + out
		}
		who := root
		if asAlice {
			who = others
			mnt.AsUser(t, userAlice(), func() { want = through(mountDoor(m.Dir), kernel.Replace(text)) })
		} else {
			want = through(mountDoor(m.Dir), kernel.Replace(text))
		}
		got = through(sessionDoor{who.Files()}, session.Replace(text))
		if want = strings.ReplaceAll(want, "k-k", "k-s"); got != want {
			t.Errorf("%s\n  mount:   %s\n  session: %s", line, want, got)
		}
	}
}

// testFS has the standard library's test judge the files.
func testFS(t *testing.T, files *client.Files) {
	must(t, files.MkdirAll("sim0/fs/a/b", 0o755))
	must(t, files.WriteFile("sim0/fs/a/x", kit.Bytes(1, 0, 3000), 0o644))
	must(t, files.WriteFile("sim0/fs/a/b/y", nil, 0o644))
	must(t, files.Symlink("a/x", "sim0/fs/z"))
	sub, err := fs.Sub(files, "sim0/fs")
	must(t, err)
	must(t, fstest.TestFS(sub, "a/x", "a/b/y", "z"))
	if _, err = files.Open("/sim0"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("an absolute name: %v", err)
	}
	_, err = files.Stat("sim0/none")
	fault, _ := errors.AsType[*fs.PathError](err)
	if fault == nil || !errors.Is(err, fs.ErrNotExist) || fault.Path != "sim0/none" || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%#v", err)
	}
}

// testFileMemory moves bytes between files and registered memory.
func testFileMemory(t *testing.T, s *client.Session) {
	const size = 3<<20 + 17
	from, to := registerMemory(t, s, size), registerMemory(t, s, size)
	copy(from.bytes, kit.Bytes(7, 0, size))
	for _, device := range []string{"host", "sim0", "sim1"} {
		f, err := s.Files().Create(device+"/s/memory", 0o600)
		must(t, err)
		n, err := f.WriteMemory(t.Context(), hetero.Blob{Memory: from.id, Size: size}, 0)
		if n != size || err != nil {
			t.Errorf("%s: wrote %d, %v", device, n, err)
		}
		clear(to.bytes)
		n, err = f.ReadMemory(t.Context(), hetero.Blob{Memory: to.id, Off: 5, Size: size - 5}, 3)
		if n != size-5 || err != nil || kit.DiffAt(to.bytes[5:], 7, 3) >= 0 {
			t.Errorf("%s: read %d, %v", device, n, err)
		}
		// Short at the end, and nothing beyond the memory.
		n, err = f.ReadMemory(t.Context(), hetero.Blob{Memory: to.id, Size: 1000}, size-10)
		if n != 10 || err != nil {
			t.Errorf("%s: read %d at the end, %v", device, n, err)
		}
		for _, b := range []hetero.Blob{{Memory: to.id, Off: 1, Size: size}, {Memory: 1 << 40, Size: 1}, {Memory: to.id, Off: devices.Offset(1<<63 - 1), Size: 1 << 62}} {
			if n, err = f.ReadMemory(t.Context(), b, 0); n != 0 || errnoWord(err) != "EINVAL" {
				t.Errorf("%s: %+v is read: %d, %v", device, b, n, err)
			}
		}
		data, err := s.Files().ReadFile(device + "/s/memory")
		if err != nil || !bytes.Equal(data, from.bytes) {
			t.Errorf("%s: %d bytes, %v", device, len(data), err)
		}
		must(t, f.Close())
		e, err := s.Files().Memory(t.Context(), device+"/s/memory", devices.HandleMemfd)
		must(t, err)
		mapping, err := e.Map()
		must(t, err)
		if !bytes.Equal(mapping.Bytes, from.bytes) {
			t.Errorf("%s: its memory has other bytes", device)
		}
		must(t, mapping.Close())
	}
}

// testFileCopy copies between devices, and compares the route with that of the mount.
func testFileCopy(t *testing.T, m *mnt.M, files *client.Files) {
	const size = 5<<20 + 3
	must(t, files.WriteFile("sim0/s/from", kit.Bytes(8, 0, size), 0o640))
	n, err := files.Copy(t.Context(), "sim0/s/from", "sim1/s/to")
	if n != size || err != nil {
		t.Fatalf("copied %d, %v", n, err)
	}
	wantContent(t, m.Path("sim1/s/to"), 8, size)
	way, err := files.Attribute("sim1/s/to", "user.hmc.path")
	if err != nil || len(way) == 0 {
		t.Errorf("%q, %v", way, err)
	}
	info, err := files.Stat("sim1/s/to")
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	for _, c := range []struct{ from, to, errno string }{
		{"sim0/s/from", "sim0/s/from", "EINVAL"},
		{"sim0/s", "sim0/s/x", "EISDIR"},
		{"sim0/s/none", "sim0/s/x", "ENOENT"},
		{"sim0/s/from", "sim0/s", "EISDIR"},
		{"sim0/s/from", "none/x", "ENOENT"},
		{"sim0/s/from", "keys/x", "EPERM"},
	} {
		if _, err = files.Copy(t.Context(), c.from, c.to); errnoWord(err) != c.errno {
			t.Errorf("copy %s to %s: %v", c.from, c.to, err)
		}
	}
}

// cachePatience is far longer than the kernel caches anything beside sessions.
const cachePatience = 20 * time.Second

// testCachedNames has sessions change files of which the kernel has cached names and attributes.
func testCachedNames(t *testing.T, m *mnt.M, files *client.Files) {
	at := func(name string) string { return m.Path("sim0", "s", name) }
	soon := func(is func() bool) {
		t.Helper()
		kit.Eventually(t, cachePatience, is)
	}
	exists := func(name string) bool {
		_, err := os.Lstat(at(name))
		return err == nil
	}
	if exists("new") {
		t.Fatal("it exists already")
	}
	must(t, files.WriteFile("sim0/s/new", []byte("one"), 0o644))
	soon(func() bool { return exists("new") })
	must(t, files.WriteFile("sim0/s/new", kit.Bytes(3, 0, 70_000), 0o644))
	soon(func() bool {
		st, err := os.Stat(at("new"))
		return err == nil && st.Size() == 70_000
	})
	wantContent(t, at("new"), 3, 70_000)
	must(t, files.Chmod("sim0/s/new", 0o600))
	soon(func() bool {
		st, err := os.Stat(at("new"))
		return err == nil && st.Mode() == 0o600
	})
	must(t, files.Rename("sim0/s/new", "sim0/s/newer"))
	soon(func() bool { return exists("newer") && !exists("new") })
	must(t, files.Remove("sim0/s/newer"))
	soon(func() bool { return !exists("newer") })
	must(t, os.WriteFile(at("newer"), []byte("two"), 0o644))
	if data, err := files.ReadFile("sim0/s/newer"); err != nil || string(data) != "two" {
		t.Errorf("%q, %v", data, err)
	}
}

// testMapped has a session read and write a file that the kernel has open by passthrough, and
// that a process has mapped.
func testMapped(t *testing.T, m *mnt.M, files *client.Files) {
	for _, device := range []string{"host", "sim0", "sim1"} {
		name := device + "/s/mapped"
		must(t, files.WriteFile(name, kit.Bytes(4, 0, 8192), 0o644))
		f, err := os.OpenFile(m.Path(name), os.O_RDWR, 0)
		must(t, err)
		data, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		data[1] = 77
		g, err := files.OpenFile(name, os.O_RDWR, 0)
		must(t, err)
		_, err = g.WriteAt(kit.Bytes(5, 4096, 4096), 4096)
		must(t, err)
		kit.Eventually(t, cachePatience, func() bool { return kit.DiffAt(data[4096:], 5, 4096) < 0 })
		must(t, unix.Msync(data, unix.MS_SYNC))
		var one [1]byte
		_, err = g.ReadAt(one[:], 1)
		if err != nil || one[0] != 77 {
			t.Errorf("%s: a store through the map is read as %d, %v", device, one[0], err)
		}
		must(t, errors.Join(unix.Munmap(data), f.Close(), g.Close()))
	}
}
