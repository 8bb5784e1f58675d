package tests

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// The daemon runs as root here and acts for another user: memory that this user could not have
// opened is not opened for it.
func TestBindIsForTheOwnerOfTheMemory(t *testing.T) {
	withoutUmask(t)
	onBoth(t, func(t *testing.T, p place) {
		const n = 64 << 10
		family := familyOf(p.name)
		roots, alices := newMemOwner(t, 0, 1, n), newMemOwner(t, alice, 2, n)
		shm := shmDir(t)
		must(t, os.Chmod(shm, 0o755))
		rootsFile, alicesFile := filepath.Join(shm, "root"), filepath.Join(shm, "alice")
		for _, f := range []string{rootsFile, alicesFile} {
			must(t, os.WriteFile(f, kit.Bytes(3, 0, n), 0o600))
			must(t, os.Chmod(f, 0o666))
		}
		must(t, os.Chown(alicesFile, alice, alice))
		reader := readOnlyProcess(t, rootsFile)
		f := p.path("f")
		must(t, os.WriteFile(f, nil, 0o666))
		must(t, os.WriteFile(p.path("closed"), nil, 0o644))
		bind := func(path, value string) error { return unix.Setxattr(path, bindXattr, []byte(value), 0) }
		mnt.AsUser(t, userAlice(), func() {
			wantErrno(t, bind(f, roots.value(family, roots.piece(0, n))), unix.EPERM)
			wantErrno(t, bind(f, bindValue(family, 0, pathPiece(roots.path(), n))), unix.EPERM)
			wantErrno(t, bind(f, bindValue(family, alices.pid(), pathPiece(roots.path(), n))), unix.EPERM)
			wantErrno(t, bind(f, bindValue(family, 0, pathPiece(rootsFile, n))), unix.EPERM)
			wantErrno(t, bind(f, bindValue(family, reader, `{"kind":"memfd","fd":3,"size":4096}`)), unix.EPERM)
			wantErrno(t, bind(p.path("closed"), alices.value(family, alices.piece(0, n))), unix.EACCES)
			if err := bind(f, alices.value(family, alices.piece(0, n))); err != nil {
				t.Errorf("alice's own memory: %v", err)
			}
		})
		wantContent(t, f, 2, n)
		must(t, os.WriteFile(p.path("g"), nil, 0o666))
		mnt.AsUser(t, userAlice(), func() {
			if err := bind(p.path("g"), bindValue(family, 0, pathPiece(alicesFile, n))); err != nil {
				t.Errorf("alice's own file: %v", err)
			}
		})
		wantContent(t, p.path("g"), 3, n)
	})
}

// readOnlyProcess starts a process of alice that has a file of root as descriptor 3, opened
// for reading.
func readOnlyProcess(t *testing.T, path string) int {
	t.Helper()
	f := open(t, path, os.O_RDONLY)
	cmd := exec.Command("cat")
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: userAlice().Credential()}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		must(t, stdin.Close())
		must(t, cmd.Wait())
	})
	return cmd.Process.Pid
}

// A handle permits reading and writing, so it requires both rights.
func TestExportIsForWhoMayReadAndWrite(t *testing.T) {
	withoutUmask(t)
	onBoth(t, func(t *testing.T, p place) {
		for _, tc := range []struct {
			mode os.FileMode
			gid  int
			want error
		}{
			{mode: 0o600, want: unix.EACCES},
			{mode: 0o604, want: unix.EPERM},
			{mode: 0o602, want: unix.EACCES},
			{mode: 0o606},
			{mode: 0o640, gid: alice, want: unix.EPERM},
			{mode: 0o660, gid: alice},
			{mode: 0o646, gid: alice, want: unix.EPERM},
			{mode: 0o606, gid: alice, want: unix.EACCES},
		} {
			f := p.path("f")
			create(t, f, 1, 4096)
			must(t, os.Chown(f, 0, tc.gid))
			must(t, os.Chmod(f, tc.mode))
			mnt.AsUser(t, userAlice(), func() {
				if _, err := getxattr(f, handleXattr); !errors.Is(err, tc.want) {
					t.Errorf("mode %o, group %d: %v, want %v", tc.mode, tc.gid, err, tc.want)
				}
			})
			must(t, os.Remove(f))
		}
	})
}

func TestExportRefuses(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		f := p.path("f")
		must(t, os.WriteFile(f, nil, 0o644))
		_, err := getxattr(f, handleXattr)
		wantErrno(t, err, unix.EINVAL)
		_, err = getxattr(p.dir, handleXattr)
		wantErrno(t, err, unix.ENODATA)
		wantErrno(t, unix.Setxattr(f, handleXattr, []byte("x"), 0), unix.EOPNOTSUPP)
		wantErrno(t, unix.Removexattr(f, handleXattr), unix.ENODATA)
		o := newMemOwner(t, 0, 1, 4096)
		must(t, unix.Setxattr(f, bindXattr, []byte(o.value(familyOf(p.name), o.piece(0, 4096))), 0))
		_, err = getxattr(f, handleXattr)
		wantErrno(t, err, unix.EOPNOTSUPP)
		// Memory that a mount exports can't be bound to the same mount.
		create(t, p.path("g"), 1, 4096)
		m, _ := exportFile(t, p.path("g"))
		must(t, os.WriteFile(p.path("h"), nil, 0o644))
		wantErrno(t, unix.Setxattr(p.path("h"), bindXattr, []byte(m.String()), 0), unix.EINVAL)
	})
}

// A device whose library has no handles reports that.
func TestOpenCLHasNoHandles(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "opencl")
	m := mnt.Mount(t, mnt.Options{Devices: []string{"opencl:0,size=64MiB"}})
	f := m.Path("ocl0", "f")
	create(t, f, 1, 4096)
	_, err := getxattr(f, handleXattr)
	wantErrno(t, err, unix.EOPNOTSUPP)
	o := newMemOwner(t, 0, 1, 4096)
	must(t, os.WriteFile(m.Path("ocl0", "g"), nil, 0o644))
	wantErrno(t, unix.Setxattr(m.Path("ocl0", "g"), bindXattr, []byte(o.value("opencl", o.piece(0, 4096))), 0), unix.EINVAL)
	wantErrno(t, unix.Setxattr(m.Path("ocl0", "g"), bindXattr,
		[]byte(o.value("opencl", `{"kind":"ipc","handle":"00","size":4096}`)), 0), unix.EOPNOTSUPP)
	wantContent(t, f, 1, 4096)
}

// TestSharingByAnUnprivilegedDaemon binds and exports where the daemon runs as the user
// itself, so that no process has root's rights.
func TestSharingByAnUnprivilegedDaemon(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "fuse", "root", "tool:fusermount3")
	deviceForAll(t)
	u := newUserMount(t)
	const n = 64 << 10
	mine, roots := newMemOwner(t, uint32(u.who.UID), 1, n), newMemOwner(t, 0, 2, n)
	// On the same file system as the user's host tier.
	shm := filepath.Join(shmDir(t), "f")
	create(t, shm, 5, n)
	must(t, os.Chown(filepath.Dir(shm), u.who.UID, u.who.GID))
	must(t, os.Chown(shm, u.who.UID, u.who.GID))
	mnt.AsUser(t, u.who, func() {
		for _, name := range []string{"host", "sim0"} {
			f := filepath.Join(u.dir, name, "bound")
			if err := os.WriteFile(f, nil, 0o600); err != nil {
				t.Error(err)
			}
			wantErrno(t, unix.Setxattr(f, bindXattr, []byte(roots.value(familyOf(name), roots.piece(0, n))), 0), unix.EPERM)
			if err := unix.Setxattr(f, bindXattr, []byte(mine.value(familyOf(name), mine.piece(0, n))), 0); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got, err := os.ReadFile(f); err != nil || len(got) != n || kit.DiffAt(got, 1, 0) >= 0 {
				t.Errorf("%s: %d bytes are not the owner's, %v", name, len(got), err)
			}
			if err := os.WriteFile(f+"-path", nil, 0o600); err != nil {
				t.Error(err)
			}
			if err := unix.Setxattr(f+"-path", bindXattr, []byte(bindValue(familyOf(name), 0, pathPiece(shm, n))), 0); err != nil {
				t.Errorf("%s: by a path: %v", name, err)
			}
			u.checkExport(filepath.Join(u.dir, name, "exported"))
		}
	})
	ours, err := filepath.Glob(u.tier() + "/*/*")
	must(t, err)
	t.Logf("files of the host tier: %q", ours)
	if len(ours) == 0 {
		t.Error("the host tier has no files")
	}
	mnt.AsUser(t, u.who, func() {
		f := filepath.Join(u.dir, "host", "itself")
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Error(err)
		}
		for _, path := range ours {
			wantErrno(t, unix.Setxattr(f, bindXattr, []byte(bindValue("host", 0, pathPiece(path, 1))), 0), unix.EINVAL)
		}
	})
	mine.kill()
	mnt.AsUser(t, u.who, func() {
		kit.Eventually(t, time.Minute, func() bool {
			_, err := os.ReadFile(filepath.Join(u.dir, "sim0", "bound"))
			return errors.Is(err, unix.EIO)
		})
	})
	if out, err := u.command("umount", u.dir).CombinedOutput(); err != nil {
		t.Errorf("umount: %v: %s", err, out)
	}
	_ = u.cmd.Wait() // its failures have been reported already
}

// checkExport exports a file, and reads and writes it by its handle.
func (u *userMount) checkExport(path string) {
	if err := os.WriteFile(path, kit.Bytes(3, 0, 10_000), 0o600); err != nil {
		u.t.Error(err)
	}
	text, err := getxattr(path, handleXattr)
	if err != nil {
		u.t.Error(err)
		return
	}
	m, err := share.Parse([]byte(text))
	if err != nil {
		u.t.Error(err)
		return
	}
	memory, err := os.OpenFile(m.Pieces[0].Path, os.O_RDWR, 0)
	if err != nil {
		u.t.Error(err)
		return
	}
	got := make([]byte, 10_000)
	if _, err := memory.ReadAt(got, 0); err != nil || kit.DiffAt(got, 3, 0) >= 0 {
		u.t.Errorf("%s: the memory is not the file's, %v", path, err)
	}
	if _, err := memory.WriteAt(kit.Bytes(4, 0, 10_000), 0); err != nil {
		u.t.Error(err)
	}
	if err := memory.Close(); err != nil {
		u.t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || kit.DiffAt(got, 4, 0) >= 0 {
		u.t.Errorf("%s: the file is not what was stored, %v", path, err)
	}
}
