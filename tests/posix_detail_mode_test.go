package tests

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/mnt"
)

func TestUmaskOfTheDaemonIsNotApplied(t *testing.T) {
	withoutUmask(t)
	everywhereWith(t, mnt.Options{AllowOther: true, Umask: 0o077}, func(t *testing.T, p place) {
		must(t, os.WriteFile(p.path("file"), nil, 0o666))
		must(t, os.Mkdir(p.path("dir"), 0o777))
		must(t, unix.Mkfifo(p.path("fifo"), 0o666))
		must(t, unix.Mknod(p.path("node"), unix.S_IFREG|0o666, 0))
		for name, want := range map[string]uint32{"file": 0o666, "dir": 0o777, "fifo": 0o666, "node": 0o666} {
			if got := mode(t, p.path(name)); got != want {
				t.Errorf("%s has mode %o, want %o", name, got, want)
			}
		}
	})
}

func TestUmaskOfTheCallerIsApplied(t *testing.T) {
	old := unix.Umask(0o027)
	t.Cleanup(func() { unix.Umask(old) })
	everywhere(t, func(t *testing.T, p place) {
		must(t, os.WriteFile(p.path("file"), nil, 0o666))
		must(t, os.Mkdir(p.path("dir"), 0o777))
		for name, want := range map[string]uint32{"file": 0o640, "dir": 0o750} {
			if got := mode(t, p.path(name)); got != want {
				t.Errorf("%s has mode %o, want %o", name, got, want)
			}
		}
	})
}

func TestStickyDirectory(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		dir := p.path("tmp")
		must(t, os.Mkdir(dir, 0o777))
		must(t, unix.Chmod(dir, 0o1777))
		mine := dir + "/of-alice"
		mnt.AsUser(t, userAlice(), func() {
			if err := os.WriteFile(mine, []byte("a"), 0o666); err != nil {
				t.Error(err)
			}
		})
		mnt.AsUser(t, userBob(), func() {
			wantErrno(t, os.Remove(mine), unix.EPERM)
			wantErrno(t, os.Rename(mine, dir+"/of-bob"), unix.EPERM)
			if err := os.WriteFile(dir+"/of-bob", nil, 0o666); err != nil {
				t.Error(err)
			}
			wantErrno(t, os.Rename(dir+"/of-bob", mine), unix.EPERM)
		})
		mnt.AsUser(t, userAlice(), func() {
			if err := os.Rename(mine, dir+"/other"); err != nil {
				t.Error(err)
			}
			if err := os.Remove(dir + "/other"); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestModesDecideWhoMayDoWhat(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("secret"), 1, 10)
		must(t, unix.Chmod(p.path("secret"), 0o600))
		create(t, p.path("readable"), 1, 10)
		must(t, unix.Chmod(p.path("readable"), 0o644))
		must(t, os.Mkdir(p.path("closed"), 0o700))
		create(t, p.path("closed", "a"), 1, 10)
		must(t, os.Mkdir(p.path("fixed"), 0o755))
		create(t, p.path("fixed", "a"), 1, 10)
		mnt.AsUser(t, userAlice(), func() {
			for what, err := range map[string]error{
				"read secret":    withFile(p.path("secret"), unix.O_RDONLY, func(*os.File) error { return nil }),
				"write readable": withFile(p.path("readable"), unix.O_WRONLY, func(*os.File) error { return nil }),
				"truncate":       unix.Truncate(p.path("readable"), 0),
				"look into":      unix.Access(p.path("closed", "a"), unix.F_OK),
				"remove from":    unix.Unlink(p.path("fixed", "a")),
				"create in":      unix.Mkdir(p.path("fixed", "b"), 0o755),
				"setxattr":       unix.Setxattr(p.path("readable"), "user.a", []byte("b"), 0),
			} {
				t.Log(what)
				wantErrno(t, err, unix.EACCES)
			}
			for what, err := range map[string]error{
				"chmod":   unix.Chmod(p.path("readable"), 0o666),
				"chown":   unix.Chown(p.path("readable"), alice, alice),
				"utimens": unix.UtimesNanoAt(unix.AT_FDCWD, p.path("readable"), []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0),
			} {
				t.Log(what)
				wantErrno(t, err, unix.EPERM)
			}
			if _, err := os.ReadFile(p.path("readable")); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestOthersStayOutWithoutAllowOther(t *testing.T) {
	m := mnt.Mount(t, mnt.Options{})
	mnt.AsUser(t, userAlice(), func() {
		_, err := os.ReadDir(m.Dir)
		wantErrno(t, err, unix.EACCES)
		_, err = os.Stat(m.Path("sim0"))
		wantErrno(t, err, unix.EACCES)
	})
}
