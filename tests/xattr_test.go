package tests

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// getxattr returns an attribute of a file, not following links.
func getxattr(path, name string) (string, error) {
	buf := make([]byte, 70_000)
	n, err := unix.Lgetxattr(path, name, buf)
	return string(buf[:max(n, 0)]), err
}

func wantXattr(t testing.TB, path, name, want string) {
	t.Helper()
	if got, err := getxattr(path, name); err != nil || got != want {
		t.Errorf("%s of %s is %q, %v, want %q", name, path, got, err, want)
	}
}

func wantNoXattr(t testing.TB, path, name string) {
	t.Helper()
	_, err := getxattr(path, name)
	wantErrno(t, err, unix.ENODATA)
}

func listxattr(t testing.TB, path string) []string {
	t.Helper()
	buf := make([]byte, 70_000)
	n, err := unix.Llistxattr(path, buf)
	must(t, err)
	if n == 0 {
		return nil
	}
	names := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
	slices.Sort(names)
	return names
}

func TestXattrs(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("f"), 1, 10)
		must(t, os.Mkdir(p.path("d"), 0o755))
		for _, path := range []string{p.path("f"), p.path("d")} {
			must(t, unix.Setxattr(path, "user.a", []byte("1"), unix.XATTR_CREATE))
			wantErrno(t, unix.Setxattr(path, "user.a", []byte("2"), unix.XATTR_CREATE), unix.EEXIST)
			wantErrno(t, unix.Setxattr(path, "user.b", []byte("2"), unix.XATTR_REPLACE), unix.ENODATA)
			must(t, unix.Setxattr(path, "user.a", []byte("3"), unix.XATTR_REPLACE))
			wantXattr(t, path, "user.a", "3")
			must(t, unix.Setxattr(path, "user.empty", nil, 0))
			wantXattr(t, path, "user.empty", "")
			must(t, unix.Setxattr(path, "trusted.t", []byte{0, 1, 0xff}, 0))
			wantXattr(t, path, "trusted.t", "\x00\x01\xff")
			big := bytes.Repeat([]byte("v"), 4000)
			must(t, unix.Setxattr(path, "user.big", big, 0))
			wantXattr(t, path, "user.big", string(big))
			if n, err := unix.Getxattr(path, "user.big", nil); n != len(big) || err != nil {
				t.Errorf("length %d, %v", n, err)
			}
			_, err := unix.Getxattr(path, "user.big", make([]byte, 10))
			wantErrno(t, err, unix.ERANGE)
			_, err = unix.Listxattr(path, make([]byte, 3))
			wantErrno(t, err, unix.ERANGE)
			for _, name := range []string{"trusted.t", "user.a", "user.big", "user.empty"} {
				if !slices.Contains(listxattr(t, path), name) {
					t.Errorf("%s is not listed: %q", name, listxattr(t, path))
				}
				must(t, unix.Removexattr(path, name))
				wantNoXattr(t, path, name)
				wantErrno(t, unix.Removexattr(path, name), unix.ENODATA)
			}
			wantErrno(t, unix.Setxattr(path, "user."+strings.Repeat("n", 251), nil, 0), unix.ERANGE)
			wantErrno(t, unix.Setxattr(path, "nonsense.a", nil, 0), unix.EOPNOTSUPP)
			wantErrno(t, unix.Setxattr(path, "user.a", make([]byte, 70_000), 0), unix.E2BIG)
		}
		must(t, os.Symlink("f", p.path("l")))
		wantErrno(t, unix.Lsetxattr(p.path("l"), "user.a", nil, 0), unix.EPERM)
	})
}

func TestXattrsManyAndAcrossNames(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("f"), 1, 10)
		for i := range 200 {
			must(t, unix.Setxattr(p.path("f"), fmt.Sprintf("user.n%03d", i), fmt.Append(nil, i), 0))
		}
		must(t, os.Link(p.path("f"), p.path("g")))
		must(t, os.Rename(p.path("f"), p.path("h")))
		for i := range 200 {
			wantXattr(t, p.path("g"), fmt.Sprintf("user.n%03d", i), fmt.Sprint(i))
		}
		if got := len(listxattr(t, p.path("h"))); got < 200 {
			t.Errorf("%d names are listed", got)
		}
	})
}

// onDevices runs a test in a directory of the host tier and of a device.
func onDevices(t *testing.T, fn func(t *testing.T, p place)) {
	t.Helper()
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	for _, name := range []string{"host", "sim0"} {
		t.Run(name, func(t *testing.T) { fn(t, place{name: name, dir: openDir(t, m.Path(name)), m: m}) })
	}
}

func TestTensorXattrs(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		f := p.path("f")
		create(t, f, 1, 4096)
		for _, tc := range []struct{ name, good, bad string }{
			{"user.hmc.dtype", "float32", "float33"},
			{"user.hmc.shape", "32,32", "32,33"},
			{"user.hmc.shape", "1024", "1024,"},
			{"user.hmc.shape", "1,1,1024,1", "-1024"},
			{"user.hmc.shape", "4,256", "18446744073709551615,2"},
			{"user.hmc.dtype", "int32", "int64"}, // the shape no longer fits
			{"user.hmc.dtype", "uint32", ""},
			{"user.hmc.blobs", "1000,3096", "1000,3097"},
			{"user.hmc.blobs", "4096", "4095"},
			{"user.hmc.blobs", "0,4096,0", "4096;"},
			{"user.hmc.blobs", "4096", "x"},
		} {
			must(t, unix.Setxattr(f, tc.name, []byte(tc.good), 0))
			wantErrno(t, unix.Setxattr(f, tc.name, []byte(tc.bad), 0), unix.EINVAL)
			wantXattr(t, f, tc.name, tc.good)
		}
		must(t, unix.Removexattr(f, "user.hmc.shape"))
		wantNoXattr(t, f, "user.hmc.shape")
		wantErrno(t, unix.Setxattr(p.dir, "user.hmc.dtype", []byte("float32"), 0), unix.EOPNOTSUPP)
		wantErrno(t, unix.Setxattr(f, "user.hmc.invented", []byte("1"), 0), unix.EOPNOTSUPP)
	})
}

func TestToldXattrs(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		f := p.path("f")
		create(t, f, 1, 1<<20)
		wantXattr(t, f, "user.hmc.device", p.name)
		wantXattr(t, f, "user.hmc.state", "live")
		wantXattr(t, f, "user.hmc.resident", fmt.Sprint(1<<20))
		if p.name == "sim0" {
			wantXattr(t, f, "user.hmc.path", "h2d")
		}
		for _, name := range []string{"device", "state", "resident", "path"} {
			wantErrno(t, unix.Setxattr(f, "user.hmc."+name, []byte("1"), 0), unix.EOPNOTSUPP)
			wantErrno(t, unix.Removexattr(f, "user.hmc."+name), unix.EOPNOTSUPP)
		}
		// Attributes that were not set are not listed: rsync -X would try to set or remove
		// them.
		if names := listxattr(t, f); len(names) > 0 {
			t.Errorf("of a file without attributes are listed %q", names)
		}
		set := []string{"user.hmc.dtype", "user.hmc.key", "user.hmc.ttl", "user.mine"}
		for i, value := range []string{"float32", "listed-" + p.name, "1000", "x"} {
			must(t, unix.Setxattr(f, set[i], []byte(value), 0))
		}
		if names := listxattr(t, f); !slices.Equal(names, set) {
			t.Errorf("listed are %q, want what was set, %q", names, set)
		}
		for _, dir := range []string{p.dir, p.m.Dir, p.m.Path(".hmcfs"), p.m.Path("keys")} {
			wantNoXattr(t, dir, "user.hmc.device")
		}
	})
}

func TestKeysLeadToTheirObjects(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		f, key := p.path("f"), "weights@v1-"+p.name
		link := p.m.Path("keys", key)
		create(t, f, 1, 5000)
		must(t, unix.Setxattr(f, "user.hmc.key", []byte(key), 0))
		wantXattr(t, f, "user.hmc.key", key)
		wantContent(t, link, 1, 5000)
		if st := lstat(t, link); st.Mode&unix.S_IFMT != unix.S_IFLNK {
			t.Errorf("mode %o", st.Mode)
		}
		must(t, os.WriteFile(link, []byte("through the key"), 0o644))
		wantContentOf(t, f, "through the key")
		// The link follows the object.
		must(t, os.Rename(f, p.path("g")))
		wantContentOf(t, link, "through the key")
		must(t, os.Rename(p.path("g"), p.m.Path("sim1", "g-"+p.name)))
		wantContentOf(t, link, "through the key")
		wantXattr(t, p.m.Path("sim1", "g-"+p.name), "user.hmc.key", key)
		must(t, os.Rename(p.m.Path("sim1", "g-"+p.name), f))
		wantKeys(t, p, key)
		// Another key replaces the first.
		must(t, unix.Setxattr(f, "user.hmc.key", []byte("other"), unix.XATTR_REPLACE))
		wantKeys(t, p, "other")
		_, err := os.Lstat(link)
		wantErrno(t, err, unix.ENOENT)
		must(t, unix.Removexattr(f, "user.hmc.key"))
		wantKeys(t, p)
		must(t, unix.Setxattr(f, "user.hmc.key", []byte(key), unix.XATTR_CREATE))
		must(t, os.Remove(f))
		wantKeys(t, p)
		_, err = os.Readlink(link)
		wantErrno(t, err, unix.ENOENT)
	})
}

func wantKeys(t *testing.T, p place, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(p.m.Path("keys"))
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("keys/ has %q, want %q", got, want)
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		f, g := p.path("f"), p.path("g")
		create(t, f, 1, 10)
		create(t, g, 2, 10)
		const all = "AZaz09-_!@#%^*()+=:;."
		long := strings.Repeat("k", 255)
		for _, good := range []string{all, long, "x"} {
			must(t, unix.Setxattr(f, "user.hmc.key", []byte(good), 0))
			wantContent(t, p.m.Path("keys", good), 1, 10)
		}
		for _, bad := range []string{"", long + "k", "a/b", "a b", "a\x00b", "ä", "a~", "a$", "a\n", ".", ".."} {
			wantErrno(t, unix.Setxattr(f, "user.hmc.key", []byte(bad), 0), unix.EINVAL)
			wantXattr(t, f, "user.hmc.key", "x")
		}
		// A key belongs to one object.
		err := unix.Setxattr(g, "user.hmc.key", []byte("x"), 0)
		wantErrno(t, err, unix.EEXIST)
		wantXattr(t, f, "user.hmc.key", "x")
		wantNoXattr(t, g, "user.hmc.key")
		wantErrno(t, unix.Setxattr(p.dir, "user.hmc.key", []byte("y"), 0), unix.EOPNOTSUPP)
		must(t, os.Remove(f))
	})
}
