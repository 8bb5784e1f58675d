package tests

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// timeCase is an operation on the file f (10 000 bytes, with a second name /l) in the
// directory that it gets, with the times that it changes.
type timeCase struct {
	do func(dir string) error
	// file and dir list the changed times of f and of the directory: "m", "c", "mc" or none.
	file, dir string
	// unseen is true if the kernel's tmpfs, which backs host files, does not detect the
	// change: it does not see stores to pages that are already mapped.
	unseen bool
}

func timeCases() map[string]timeCase {
	at := unix.AT_FDCWD
	rw := func(fn func(f *os.File) error) func(string) error {
		return func(d string) error { return withFile(d+"/f", unix.O_RDWR, fn) }
	}
	return map[string]timeCase{
		"read":  {do: func(d string) error { _, err := os.ReadFile(d + "/f"); return err }},
		"stat":  {do: func(d string) error { _, err := os.Stat(d + "/f"); return err }},
		"list":  {do: func(d string) error { _, err := os.ReadDir(d); return err }},
		"write": {do: rw(func(f *os.File) error { _, err := f.WriteAt([]byte("x"), 5); return err }), file: "mc"},
		"write nothing": {do: rw(func(f *os.File) error {
			_, err := unix.Pwrite(int(f.Fd()), nil, 5)
			return err
		})},
		"append": {do: func(d string) error {
			return withFile(d+"/f", unix.O_WRONLY|unix.O_APPEND, func(f *os.File) error {
				_, err := f.WriteString("x")
				return err
			})
		}, file: "mc"},
		"truncate":         {do: func(d string) error { return unix.Truncate(d+"/f", 5) }, file: "mc"},
		"truncate to more": {do: func(d string) error { return unix.Truncate(d+"/f", 50_000) }, file: "mc"},
		"truncate to same": {do: func(d string) error { return unix.Truncate(d+"/f", 10_000) }, file: "mc"},
		"ftruncate":        {do: rw(func(f *os.File) error { return f.Truncate(5) }), file: "mc"},
		"open O_TRUNC": {do: func(d string) error {
			return withFile(d+"/f", unix.O_WRONLY|unix.O_TRUNC, func(*os.File) error { return nil })
		}, file: "mc"},
		"fallocate":      {do: rw(func(f *os.File) error { return fallocate(f, 0, 0, 20_000) }), file: "mc"},
		"punch hole":     {do: rw(func(f *os.File) error { return fallocate(f, punchHole, 0, 4096) }), file: "mc"},
		"store in a map": {do: rw(storeInMap), file: "mc"},
		"store in a map where it was read": {
			do: rw(func(f *os.File) error { return inMap(f, func(mem []byte) { mem[7] = mem[8] + 1 }) }), file: "mc", unseen: true,
		},
		"copy_file_range":  {do: copyInto("/other", "/f"), file: "mc"},
		"copied elsewhere": {do: copyInto("/f", "/other")},
		"chmod":            {do: func(d string) error { return unix.Chmod(d+"/f", 0o600) }, file: "c"},
		"chown":            {do: func(d string) error { return os.Chown(d+"/f", alice, -1) }, file: "c"},
		"setxattr":         {do: func(d string) error { return unix.Setxattr(d+"/f", "user.b", []byte("1"), 0) }, file: "c"},
		"removexattr":      {do: func(d string) error { return unix.Removexattr(d+"/f", "user.a") }, file: "c"},
		"utimens atime": {do: func(d string) error {
			return unix.UtimesNanoAt(at, d+"/f", []unix.Timespec{{Sec: 1}, {Nsec: unix.UTIME_OMIT}}, 0)
		}, file: "c"},
		"utimens now": {do: func(d string) error {
			return unix.UtimesNanoAt(at, d+"/f", []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}, 0)
		}, file: "mc"},
		"link":            {do: func(d string) error { return os.Link(d+"/f", d+"/new") }, file: "c", dir: "mc"},
		"unlink":          {do: func(d string) error { return os.Remove(d + "/l") }, file: "c", dir: "mc"},
		"rename":          {do: func(d string) error { return rename(d, "f", "g", 0, "g", "f") }, file: "c", dir: "mc"},
		"rename over":     {do: func(d string) error { return os.Rename(d+"/f", d+"/other") }, file: "c", dir: "mc"},
		"overwritten":     {do: func(d string) error { return os.Rename(d+"/other", d+"/f") }, file: "c", dir: "mc"},
		"exchange":        {do: func(d string) error { return rename(d, "f", "other", unix.RENAME_EXCHANGE) }, file: "c", dir: "mc"},
		"create":          {do: func(d string) error { return os.WriteFile(d+"/new", nil, 0o644) }, dir: "mc"},
		"mkdir":           {do: func(d string) error { return os.Mkdir(d+"/new", 0o755) }, dir: "mc"},
		"rmdir":           {do: func(d string) error { return unix.Rmdir(d + "/sub") }, dir: "mc"},
		"symlink":         {do: func(d string) error { return os.Symlink("a", d+"/new") }, dir: "mc"},
		"mkfifo":          {do: func(d string) error { return unix.Mkfifo(d+"/new", 0o644) }, dir: "mc"},
		"create in below": {do: func(d string) error { return os.WriteFile(d+"/sub/new", nil, 0o644) }},
		"failing create":  {do: func(d string) error { return ignoring(unix.Mkdir(d+"/f", 0o755), unix.EEXIST) }},
		"failing remove":  {do: func(d string) error { return ignoring(unix.Unlink(d+"/none"), unix.ENOENT) }},
	}
}

// rename renames and, if two more names are given, renames those as well, to undo it.
func rename(dir, from, to string, flags uint, back ...string) error {
	err := unix.Renameat2(unix.AT_FDCWD, dir+"/"+from, unix.AT_FDCWD, dir+"/"+to, flags)
	if err != nil || len(back) == 0 {
		return err
	}
	return os.Rename(dir+"/"+back[0], dir+"/"+back[1])
}

func copyInto(from, to string) func(string) error {
	return func(d string) error {
		return withFile(d+from, unix.O_RDONLY, func(src *os.File) error {
			return withFile(d+to, unix.O_WRONLY, func(dst *os.File) error {
				_, err := copyFileRange(src, nil, dst, nil, 100)
				return err
			})
		})
	}
}

func storeInMap(f *os.File) error { return inMap(f, func(mem []byte) { mem[7] = 1 }) }

// inMap maps the file's first page, calls fn with it and syncs it.
func inMap(f *os.File, fn func(mem []byte)) error {
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	fn(mem)
	if err := unix.Msync(mem, unix.MS_SYNC); err != nil {
		return err
	}
	return unix.Munmap(mem)
}

func ignoring(err, expected error) error {
	if err == expected { //nolint:errorlint // package unix returns it bare
		return nil
	}
	return err
}

func TestTimesOfEveryOperation(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		cases := timeCases()
		for _, what := range slices.Sorted(maps.Keys(cases)) {
			t.Run(what, func(t *testing.T) {
				c := cases[what]
				if c.unseen && !p.isDevice() {
					c.file = ""
				}
				checkTimes(t, openDir(t, p.dir), c)
			})
		}
	})
}

func checkTimes(t *testing.T, dir string, c timeCase) {
	t.Helper()
	create(t, dir+"/f", 1, 10_000)
	create(t, dir+"/other", 2, 10_000)
	must(t, unix.Setxattr(dir+"/f", "user.a", []byte("1"), 0))
	must(t, os.Link(dir+"/f", dir+"/l"))
	must(t, os.Mkdir(dir+"/sub", 0o755))
	f := open(t, dir+"/f", os.O_RDONLY)
	file, parent := fstat(t, f), lstat(t, dir)
	kit.ClockTick(t)
	must(t, c.do(dir))
	fileNow, parentNow := fstat(t, f), lstat(t, dir)
	must(t, f.Close())
	if got := moved(file, fileNow); got != c.file {
		t.Errorf("of the file moved %q, want %q", got, c.file)
	}
	if got := moved(parent, parentNow); got != c.dir {
		t.Errorf("of the directory moved %q, want %q", got, c.dir)
	}
	// The attributes by name equal those by descriptor, now and when the kernel has to ask
	// again.
	if st, err := os.Lstat(dir + "/l"); err == nil {
		if byName := lstat(t, dir+"/l"); byName.Mtim != fileNow.Mtim || byName.Ctim != fileNow.Ctim {
			t.Errorf("by name %v %v, by descriptor %v %v (%v)", byName.Mtim, byName.Ctim, fileNow.Mtim, fileNow.Ctim, st.Name())
		}
	}
}

// moved lists the times that are later than before; one that is earlier gets a minus.
func moved(before, after unix.Stat_t) string {
	var b strings.Builder
	for _, c := range []struct {
		name        string
		then, later unix.Timespec
	}{{"m", before.Mtim, after.Mtim}, {"c", before.Ctim, after.Ctim}} {
		switch then, now := c.then.Nano(), c.later.Nano(); {
		case now > then:
			b.WriteString(c.name)
		case now < then:
			b.WriteString("-" + c.name)
		}
	}
	return b.String()
}

func TestTimesSetAreKeptToTheNanosecond(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("f"), 1, 100)
		must(t, os.Mkdir(p.path("d"), 0o755))
		must(t, os.Symlink("f", p.path("l")))
		for _, want := range [][2]unix.Timespec{
			{{Sec: 1, Nsec: 2}, {Sec: 3, Nsec: 4}},
			{{Sec: 1_234_567_890, Nsec: 123_456_789}, {Sec: 1_999_999_999, Nsec: 999_999_999}},
			{{Sec: 0, Nsec: 0}, {Sec: 1 << 32, Nsec: 1}},
			{{Sec: -5, Nsec: 7}, {Sec: -1, Nsec: 999_999_999}},
		} {
			for _, name := range []string{"f", "d", "l"} {
				must(t, unix.UtimesNanoAt(unix.AT_FDCWD, p.path(name), want[:], unix.AT_SYMLINK_NOFOLLOW))
				st := lstat(t, p.path(name))
				if st.Atim != want[0] || st.Mtim != want[1] {
					t.Errorf("%s: got %v %v, want %v", name, st.Atim, st.Mtim, want)
				}
			}
		}
		f := open(t, p.path("f"), os.O_RDWR)
		writeRange(t, f, 2, 0, 10)
		want := []unix.Timespec{{Sec: 11, Nsec: 12}, {Sec: 13, Nsec: 14}}
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, p.path("f"), want, 0))
		must(t, f.Close())
		if st := lstat(t, p.path("f")); st.Mtim != want[1] {
			t.Errorf("mtime set while the file was open is %v after close, want %v", st.Mtim, want[1])
		}
	})
}

// TestTimesThatAreSetStay checks that earlier stores through a map are not written back later,
// with a time of their own.
func TestTimesThatAreSetStay(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("a"), 1, 10_000)
		f := open(t, p.path("a"), os.O_RDWR)
		must(t, inMap(f, func(mem []byte) {
			kit.FillAt(mem, 2, 0)
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, p.path("a"), []unix.Timespec{{Sec: 11, Nsec: 12}, {Sec: 13, Nsec: 14}}, 0))
		}))
		if got := fstat(t, f).Mtim; got.Sec != 13 || got.Nsec != 14 {
			t.Errorf("mtime is %d.%09d, want 13.000000014", got.Sec, got.Nsec)
		}
		wantRange(t, f, 2, 0, 4096)
		must(t, f.Close())
	})
}
