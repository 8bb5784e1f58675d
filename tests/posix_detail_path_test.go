package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/mnt"
)

// pathMax is PATH_MAX without the zero byte: the length of the longest path that a program can
// name.
const pathMax = unix.PathMax - 1

// deepDir creates directories below dir until a path has exactly n bytes, including a last
// component that the caller has to create, and returns that path.
func deepDir(t *testing.T, dir string, n int) string {
	t.Helper()
	const long = 200
	path := dir
	for n-len(path) > long+55 {
		path = filepath.Join(path, strings.Repeat("d", long))
		must(t, os.Mkdir(path, 0o755))
	}
	return path + "/" + strings.Repeat("f", n-len(path)-1)
}

func TestLongestPath(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		path := deepDir(t, p.dir, pathMax)
		if len(path) != pathMax {
			t.Fatalf("the path has %d bytes", len(path))
		}
		create(t, path, 1, 10_000)
		wantContent(t, path, 1, 10_000)
		must(t, unix.Setxattr(path, "user.a", []byte("b"), 0))
		must(t, os.Truncate(path, 5000))
		wantContent(t, path, 1, 5000)
		shorter := filepath.Join(filepath.Dir(path), "s")
		must(t, os.Rename(path, shorter))
		must(t, os.Link(shorter, path))
		wantContent(t, path, 1, 5000)
		must(t, os.Remove(shorter))
		must(t, os.Remove(path))
		must(t, os.Symlink("target", path))
		must(t, os.Remove(path))
		must(t, os.Mkdir(path, 0o755))
		must(t, os.Remove(path))
		_, err := os.Stat(path + "f")
		wantErrno(t, err, unix.ENAMETOOLONG)
	})
}

func TestDeeperThanAPathCanName(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const levels, long = 40, 255
		name := strings.Repeat("d", long)
		root, err := os.OpenRoot(p.dir)
		must(t, err)
		for range levels {
			must(t, root.Mkdir(name, 0o755))
			above := root
			root, err = above.OpenRoot(name)
			must(t, err)
			must(t, above.Close())
		}
		must(t, root.WriteFile("leaf", []byte("deep"), 0o644))
		got, err := root.ReadFile("leaf")
		must(t, err)
		if string(got) != "deep" {
			t.Errorf("got %q", got)
		}
		must(t, root.Close())
		must(t, os.RemoveAll(p.path(name)))
	})
}

func TestLongestNames(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		name, tooLong := strings.Repeat("n", 255), strings.Repeat("n", 256)
		create(t, p.path(name), 1, 10)
		must(t, os.Rename(p.path(name), p.path("a")))
		must(t, os.Rename(p.path("a"), p.path(name)))
		wantContent(t, p.path(name), 1, 10)
		for _, err := range []error{
			os.WriteFile(p.path(tooLong), nil, 0o644),
			os.Mkdir(p.path(tooLong), 0o755),
			os.Symlink("a", p.path(tooLong)),
			os.Link(p.path(name), p.path(tooLong)),
			os.Rename(p.path(name), p.path(tooLong)),
			os.Remove(p.path(tooLong)),
			unix.Mkfifo(p.path(tooLong), 0o644),
		} {
			wantErrno(t, err, unix.ENAMETOOLONG)
		}
		// Names are bytes, not text.
		odd := "\xff\xfe\n\t ü%"
		create(t, p.path(odd), 2, 10)
		wantContent(t, p.path(odd), 2, 10)
		entries, err := os.ReadDir(p.dir)
		must(t, err)
		if len(entries) != 2 || entries[1].Name() != odd && entries[0].Name() != odd {
			t.Errorf("listed %q", entries)
		}
	})
}

func TestSymlinkTargets(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		for _, target := range []string{"a", "../x/./y", "/abs/olute", strings.Repeat("t", pathMax)} {
			must(t, os.Symlink(target, p.path("l")))
			got, err := os.Readlink(p.path("l"))
			must(t, err)
			if got != target {
				t.Errorf("got %q, want %q", got, target)
			}
			if st := lstat(t, p.path("l")); st.Size != int64(len(target)) || st.Mode != unix.S_IFLNK|0o777 {
				t.Errorf("size %d, mode %o", st.Size, st.Mode)
			}
			must(t, os.Remove(p.path("l")))
		}
		wantErrno(t, os.Symlink(strings.Repeat("t", pathMax+1), p.path("l")), unix.ENAMETOOLONG)
		wantErrno(t, os.Symlink("", p.path("l")), unix.ENOENT)
		create(t, p.path("a"), 1, 10)
		must(t, os.Symlink("a", p.path("l")))
		wantContent(t, p.path("l"), 1, 10)
		must(t, os.Symlink("m", p.path("m")))
		_, err := os.ReadFile(p.path("m"))
		wantErrno(t, err, unix.ELOOP)
	})
}

func TestRootAndControlBelongToHMCFS(t *testing.T) {
	m := mnt.Mount(t, mnt.Options{})
	create(t, m.Path("sim0", "a"), 1, 10)
	for _, dir := range []string{m.Dir, m.Path(".hmcfs"), m.Path("keys")} {
		for what, err := range map[string]error{
			"create": os.WriteFile(filepath.Join(dir, "new"), nil, 0o644),
			"mkdir":  os.Mkdir(filepath.Join(dir, "new"), 0o755),
			"mkfifo": unix.Mkfifo(filepath.Join(dir, "new"), 0o644),
			"link":   os.Symlink("a", filepath.Join(dir, "new")),
			"rename": os.Rename(m.Path("sim0", "a"), filepath.Join(dir, "new")),
			"chmod":  os.Chmod(dir, 0o777),
		} {
			t.Log(what, dir)
			wantErrno(t, err, unix.EPERM)
		}
	}
	for what, err := range map[string]error{
		"rename a device":   os.Rename(m.Path("sim0"), m.Path("sim9")),
		"remove a device":   unix.Rmdir(m.Path("sim0")),
		"remove control":    unix.Rmdir(m.Path(".hmcfs")),
		"remove version":    unix.Unlink(m.Path(".hmcfs", "version")),
		"rename version":    os.Rename(m.Path(".hmcfs", "version"), m.Path("sim0", "v")),
		"truncate stats":    os.Truncate(m.Path(".hmcfs", "stats"), 0),
		"exchange a device": unix.Renameat2(unix.AT_FDCWD, m.Path("sim0"), unix.AT_FDCWD, m.Path("sim1"), unix.RENAME_EXCHANGE),
	} {
		t.Log(what)
		wantErrno(t, err, unix.EPERM)
	}
	wantContent(t, m.Path("sim0", "a"), 1, 10)
}
