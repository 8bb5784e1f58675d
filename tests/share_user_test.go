package tests

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// The daemon is root here and acts for another user: what that user could not
// have opened is not opened for him.
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

// readOnlyProcess is a process of alice's that was given a file of root's to
// read, as descriptor 3.
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

// A handle is as good as reading and writing, so it takes both.
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
		// What a mount exports is not bound to it again.
		create(t, p.path("g"), 1, 4096)
		m, _ := exportFile(t, p.path("g"))
		must(t, os.WriteFile(p.path("h"), nil, 0o644))
		wantErrno(t, unix.Setxattr(p.path("h"), bindXattr, []byte(m.String()), 0), unix.EINVAL)
	})
}

// A device whose library has no handles says so.
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
