package tests

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/mnt"
)

// The users of the tests. None is in another's group.
const (
	alice = 60001
	bob   = 60002
	team  = 60100
)

func userAlice() mnt.User { return mnt.User{UID: alice, GID: alice} }
func userBob() mnt.User   { return mnt.User{UID: bob, GID: bob} }

// withoutUmask runs the test with umask 0.
func withoutUmask(t *testing.T) {
	t.Helper()
	old := unix.Umask(0)
	t.Cleanup(func() { unix.Umask(old) })
}

func TestSetGroupIDDirectoryHandsOnItsGroup(t *testing.T) {
	withoutUmask(t)
	everywhere(t, func(t *testing.T, p place) {
		dir := p.path("team")
		must(t, os.Mkdir(dir, 0o777))
		must(t, os.Chown(dir, -1, team))
		must(t, unix.Chmod(dir, 0o2777))
		make := map[string]func(string) error{
			"file":    func(n string) error { return os.WriteFile(n, nil, 0o666) },
			"dir":     func(n string) error { return os.Mkdir(n, 0o777) },
			"fifo":    func(n string) error { return unix.Mkfifo(n, 0o666) },
			"symlink": func(n string) error { return os.Symlink("nowhere", n) },
		}
		for kind, fn := range make {
			name := dir + "/" + kind
			mnt.AsUser(t, userAlice(), func() {
				if err := fn(name); err != nil {
					t.Error(err)
				}
			})
			st := lstat(t, name)
			if st.Gid != team || st.Uid != alice {
				t.Errorf("%s belongs to %d:%d, want %d:%d", kind, st.Uid, st.Gid, alice, team)
			}
			if has := st.Mode&unix.S_ISGID != 0; has != (kind == "dir") {
				t.Errorf("%s has mode %o; a directory, and nothing else, gets the bit", kind, st.Mode)
			}
		}
		must(t, os.Mkdir(dir+"/dir/below", 0o777))
		if st := lstat(t, dir+"/dir/below"); st.Gid != team || st.Mode&unix.S_ISGID == 0 {
			t.Errorf("two levels down: group %d, mode %o", st.Gid, st.Mode)
		}
	})
}

func TestSetGroupIDBitIsNotForNonMembers(t *testing.T) {
	withoutUmask(t)
	everywhere(t, func(t *testing.T, p place) {
		dir := p.path("team")
		must(t, os.Mkdir(dir, 0o777))
		must(t, os.Chown(dir, -1, team))
		must(t, unix.Chmod(dir, 0o2777))
		member := mnt.User{UID: bob, GID: bob, Groups: []int{team}}
		for _, tc := range []struct {
			name string
			user mnt.User
			want uint32
		}{
			{"alice", userAlice(), 0o775}, {"bob", member, 0o2775},
		} {
			made, changed := dir+"/made-by-"+tc.name, dir+"/changed-by-"+tc.name
			mnt.AsUser(t, tc.user, func() {
				for _, err := range []error{
					unix.Mknod(made, unix.S_IFREG|0o2775, 0), unix.Mknod(changed, unix.S_IFREG|0o775, 0),
					unix.Chmod(changed, 0o2775),
				} {
					if err != nil {
						t.Error(err)
					}
				}
			})
			for _, name := range []string{made, changed} {
				if got := mode(t, name); got != tc.want {
					t.Errorf("%s has mode %o, want %o", name, got, tc.want)
				}
			}
		}
	})
}

// setIDChanges returns the ways in which another user can change a file. Each gets a file of 8
// KiB that is open for writing, and its name.
func setIDChanges() map[string]func(f *os.File, name string) error {
	return map[string]func(f *os.File, name string) error{
		"write": func(f *os.File, _ string) error {
			_, err := f.WriteAt([]byte("x"), 1)
			return err
		},
		"append": func(_ *os.File, name string) error {
			return withFile(name, unix.O_WRONLY|unix.O_APPEND, func(f *os.File) error {
				_, err := f.WriteString("x")
				return err
			})
		},
		"truncate":          func(_ *os.File, name string) error { return unix.Truncate(name, 10) },
		"ftruncate":         func(f *os.File, _ string) error { return f.Truncate(10) },
		"ftruncate to more": func(f *os.File, _ string) error { return f.Truncate(10_000) },
		"open O_TRUNC": func(_ *os.File, name string) error {
			return withFile(name, unix.O_WRONLY|unix.O_TRUNC, func(*os.File) error { return nil })
		},
		"fallocate":  func(f *os.File, _ string) error { return fallocate(f, 0, 0, 20_000) },
		"punch hole": func(f *os.File, _ string) error { return fallocate(f, punchHole, 0, 4096) },
		"copy_file_range": func(f *os.File, _ string) error {
			return withFile(f.Name()+".source", unix.O_RDONLY, func(from *os.File) error {
				_, err := copyFileRange(from, nil, f, nil, 4096)
				return err
			})
		},
	}
}

// withFile opens a file and calls fn with it.
func withFile(name string, flags int, fn func(f *os.File) error) error {
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return err
	}
	err = fn(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func TestSetIDBitsAreClearedByWhoeverChanges(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		for what, change := range setIDChanges() {
			t.Run(what, func(t *testing.T) {
				name := p.path(what)
				create(t, name, 1, 8192)
				create(t, name+".source", 2, 8192)
				must(t, unix.Chmod(name, 0o6777))
				byRoot(t, name, change)
				mnt.AsUser(t, userAlice(), func() {
					err := withFile(name, unix.O_RDWR, func(f *os.File) error { return change(f, name) })
					if err != nil {
						t.Error(err)
					}
				})
				if got := mode(t, name); got != 0o777 {
					t.Errorf("changed by another user, the mode is %o, want 777", got)
				}
			})
		}
	})
}

// byRoot makes the change as root, which preserves the bits, and restores the file.
func byRoot(t *testing.T, name string, change func(f *os.File, name string) error) {
	t.Helper()
	must(t, withFile(name, unix.O_RDWR, func(f *os.File) error { return change(f, name) }))
	if got := mode(t, name); got != 0o6777 {
		t.Errorf("changed by root, the mode is %o, want 6777", got)
	}
	must(t, os.Truncate(name, 8192))
	must(t, unix.Chmod(name, 0o6777))
}

func TestSetIDBitsAreClearedByChown(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		name := p.path("a")
		create(t, name, 1, 10)
		must(t, unix.Chmod(name, 0o6755))
		must(t, os.Chown(name, alice, alice))
		if got := mode(t, name); got != 0o755 {
			t.Errorf("after chown of root the mode is %o, want 755", got)
		}
		must(t, unix.Chmod(name, 0o6755))
		mnt.AsUser(t, mnt.User{UID: alice, GID: alice, Groups: []int{team}}, func() {
			if err := os.Chown(name, -1, team); err != nil {
				t.Error(err)
			}
		})
		if st := lstat(t, name); st.Mode&0o7777 != 0o755 || st.Gid != team {
			t.Errorf("after chown of the owner: mode %o, group %d", st.Mode&0o7777, st.Gid)
		}
	})
}
