package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

func TestOthersDoWhatModesAllow(t *testing.T) {
	withoutUmask(t)
	everywhere(t, func(t *testing.T, p place) {
		for _, tc := range []struct {
			mode        uint32
			gid         int
			read, write bool
		}{
			{mode: 0o600},
			{mode: 0o660},
			{mode: 0o604, read: true},
			{mode: 0o602, write: true},
			{mode: 0o666, read: true, write: true},
			{mode: 0o640, gid: alice, read: true},
			{mode: 0o660, gid: alice, read: true, write: true},
			// The group class decides, even if the class of others grants more.
			{mode: 0o606, gid: alice},
		} {
			file := p.path(fmt.Sprintf("%o-%d", tc.mode, tc.gid))
			must(t, os.WriteFile(file, []byte("of root"), 0o600))
			must(t, os.Chown(file, 0, tc.gid))
			must(t, os.Chmod(file, os.FileMode(tc.mode)))
			mnt.AsUser(t, userAlice(), func() {
				wantAllowed(t, tc.read, file, os.O_RDONLY)
				wantAllowed(t, tc.write, file, os.O_WRONLY)
				wantAllowed(t, tc.read && tc.write, file, os.O_RDWR)
				wantAllowed(t, tc.write, file, os.O_WRONLY|os.O_TRUNC)
				wantErrno(t, unix.Chmod(file, 0o777), unix.EPERM)
				wantErrno(t, unix.Chown(file, alice, alice), unix.EPERM)
				if !tc.write {
					wantErrno(t, unix.Truncate(file, 0), unix.EACCES)
					wantErrno(t, unix.Setxattr(file, "user.a", []byte("x"), 0), unix.EACCES)
				}
			})
		}
		closed := p.path("closed")
		must(t, os.Mkdir(closed, 0o700))
		must(t, os.WriteFile(filepath.Join(closed, "f"), []byte("x"), 0o666))
		must(t, os.Mkdir(p.path("search"), 0o711))
		must(t, os.WriteFile(p.path("search", "f"), []byte("x"), 0o666))
		mnt.AsUser(t, userAlice(), func() {
			wantAllowed(t, false, filepath.Join(closed, "f"), os.O_RDONLY)
			wantAllowed(t, true, p.path("search", "f"), os.O_RDWR)
			_, err := os.ReadDir(p.path("search"))
			wantErrno(t, err, unix.EACCES)
			wantErrno(t, os.Remove(p.path("search", "f")), unix.EACCES)
			wantErrno(t, os.Mkdir(p.path("search", "d"), 0o777), unix.EACCES)
		})
	})
}

// wantAllowed opens a file with the given flags and checks whether that is allowed.
func wantAllowed(t *testing.T, allowed bool, path string, flags int) {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0)
	if err == nil {
		_ = f.Close() // nothing was written
	}
	if allowed != (err == nil) || err != nil && !os.IsPermission(err) {
		t.Errorf("open %s with flags %#x: %v; allowed is %v", path, flags, err, allowed)
	}
}

// TestAdminSocketRefusesOthers sends requests as another user, whose identity the daemon
// checks.
func TestAdminSocketRefusesOthers(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{AllowOther: true})
	socket := filepath.Join(m.RuntimeDir, "admin.sock")
	for _, request := range [][2]string{
		{"GET", adminapi.PathStatus},
		{"GET", adminapi.PathConfig},
		{"GET", adminapi.PathVersion},
		{"GET", adminapi.PathMetrics},
		{"POST", adminapi.PathFsck},
		{"POST", adminapi.PathUmount},
		{"POST", adminapi.PathUpgrade},
	} {
		mnt.AsUser(t, userAlice(), func() {
			answer, err := askRaw(socket, request[0], request[1])
			if err != nil || !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
				t.Errorf("%s %s as another user: %v\n%s", request[0], request[1], err, answer)
			}
		})
		if answer, err := askRaw(socket, "GET", adminapi.PathVersion); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
			t.Errorf("GET %s as root: %v\n%s", adminapi.PathVersion, err, answer)
		}
	}
	for _, verb := range []string{"df", "ls"} { // they use a session
		cmd := m.Command(verb, m.Path())
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: userAlice().Credential()}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "sim0") {
			t.Errorf("%s as another user: %v\n%s", verb, err, out)
		}
	}
}

// askRaw sends a request over a Unix socket, from this thread alone, and returns the beginning
// of the answer.
func askRaw(socket, method, path string) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }() // the exchange is complete
	if err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return "", err
	}
	request := method + " " + path + " HTTP/1.1\r\nHost: hmcfs\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
	if _, err = unix.Write(fd, []byte(request)); err != nil {
		return "", err
	}
	answer := make([]byte, 4096)
	n, err := unix.Read(fd, answer)
	return string(answer[:max(n, 0)]), err
}

// userMount is a mount by a user without any privilege.
type userMount struct {
	t         *testing.T
	who       mnt.User
	root, dir string
	cmd       *exec.Cmd
}

// TestDaemonOfAnUnprivilegedUser mounts as a user that has only /dev/fuse and fusermount3.
func TestDaemonOfAnUnprivilegedUser(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "fuse", "root", "tool:fusermount3")
	deviceForAll(t)
	u := newUserMount(t)
	s := u.status()
	if s.Passthrough.On || s.Passthrough.Reason == "" || s.UID != u.who.UID {
		t.Errorf("the status says of passthrough %+v and of the user %d", s.Passthrough, s.UID)
	}
	_, err := os.ReadDir(u.dir)
	wantErrno(t, err, unix.EACCES) // root is another user too
	want := kit.Bytes(1, 0, 3<<20+7)
	first := bytes.Clone(want) // what sim0/b has: write changes host/a, and want, through a map
	mnt.AsUser(t, u.who, func() { u.write(want) })
	must(t, u.cmd.Process.Kill())
	mnt.AsUser(t, u.who, func() { u.check("host/a", want); u.check("sim0/b", first) }) // by the next daemon
	u.kill()
	u.start()
	tier := u.tier()
	mnt.AsUser(t, u.who, func() { u.checkAfterDeath(want) })
	if out, err := u.command("fsck", "--remove-lost", u.dir).CombinedOutput(); err != nil {
		t.Errorf("fsck: %v: %s", err, out)
	}
	if out, err := u.command("umount", u.dir).CombinedOutput(); err != nil {
		t.Errorf("umount: %v: %s", err, out)
	}
	_ = u.cmd.Wait() // its failures have been reported already
	if left := mnt.MountedBelow(u.root); len(left) > 0 {
		t.Errorf("still mounted: %q", left)
	}
	if _, err := os.Lstat(tier); !errors.Is(err, unix.ENOENT) {
		t.Errorf("left in shared memory: %q, %v", tier, err)
	}
}

// newUserMount mounts as the user.
func newUserMount(t *testing.T) *userMount {
	t.Helper()
	u := &userMount{t: t, who: mnt.User{UID: 65534, GID: 65534}, root: mnt.TempDir(t)}
	u.dir = filepath.Join(u.root, "mnt")
	for _, d := range []string{"mnt", "state", "run", "home"} {
		must(t, os.Mkdir(filepath.Join(u.root, d), 0o700))
		must(t, os.Chown(filepath.Join(u.root, d), u.who.UID, u.who.GID))
	}
	program, err := os.Executable() // where only root may enter
	must(t, err)
	must(t, exec.Command("cp", program, filepath.Join(u.root, "hmcfs")).Run())
	u.start()
	return u
}

// write writes to both tiers, by the methods that need no passthrough.
func (u *userMount) write(want []byte) {
	for _, name := range []string{"host/a", "sim0/b"} {
		path := filepath.Join(u.dir, name)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			u.t.Error(err)
		}
		got, err := os.ReadFile(path)
		if i := kit.FirstDiff(got, want); err != nil || i >= 0 {
			u.t.Errorf("%s: differs at %d, %v", path, i, err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || int(st.Uid) != u.who.UID || st.Mode != unix.S_IFREG|0o600 {
			u.t.Errorf("%s: owner %d, mode %o, %v", path, st.Uid, st.Mode, err)
		}
	}
	f, err := os.OpenFile(filepath.Join(u.dir, "host/a"), os.O_RDWR, 0)
	if err != nil {
		u.t.Error(err)
		return
	}
	defer func() { _ = f.Close() }() // the map was synced
	m, err := unix.Mmap(int(f.Fd()), 0, len(want), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		u.t.Error(err)
		return
	}
	copy(m[4090:], "stored through a map")
	copy(want[4090:], "stored through a map")
	if err := unix.Msync(m, unix.MS_SYNC); err != nil {
		u.t.Error(err)
	}
	if err := unix.Munmap(m); err != nil {
		u.t.Error(err)
	}
}

// check checks a file after the daemon was killed.
func (u *userMount) check(name string, want []byte) {
	got, err := os.ReadFile(filepath.Join(u.dir, name))
	if i := kit.FirstDiff(got, want); err != nil || i >= 0 || len(got) != len(want) {
		u.t.Errorf("%s after kill -9: %d bytes, differs at %d, %v", name, len(got), i, err)
	}
}

// checkAfterDeath checks the state after the daemon and its holder were killed.
func (u *userMount) checkAfterDeath(want []byte) {
	u.check("host/a", want)
	_, err := os.ReadFile(filepath.Join(u.dir, "sim0/b"))
	wantErrno(u.t, err, unix.EIO)
}

// command returns a command that runs hmcfs as the user.
func (u *userMount) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(u.root, "hmcfs"), args...)
	cmd.Dir = "/"
	home := filepath.Join(u.root, "home")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_RUNTIME_DIR="+home, "XDG_STATE_HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.who.Credential()}
	return cmd
}

// start mounts and waits for the mount to answer.
func (u *userMount) start() {
	u.t.Helper()
	cmd := u.command("mount", "-f", "--state-dir", filepath.Join(u.root, "state"), "--runtime-dir", filepath.Join(u.root, "run"),
		"--device", "host,size=32MiB", "--device", "sim:0,size=32MiB", u.dir)
	// The holder has it open as well, so a pipe would not end with the daemon.
	log, err := os.OpenFile(filepath.Join(u.root, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(u.t, err)
	cmd.Stdout, cmd.Stderr = log, log
	must(u.t, errors.Join(cmd.Start(), log.Close()))
	u.cmd = cmd
	u.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended if the test succeeded
		_ = cmd.Wait()
		if u.t.Failed() {
			text, err := os.ReadFile(log.Name())
			u.t.Logf("the user's daemon:\n%s%v", text, err)
		}
	})
	kit.Eventually(u.t, time.Minute, func() error { return u.command("status", u.dir).Run() })
}

// tier returns the directory of the host tier, which the daemon has open. Other mounts of the
// same user have theirs next to it.
func (u *userMount) tier() string {
	u.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", u.cmd.Process.Pid))
	must(u.t, err)
	parent := fmt.Sprintf("/dev/shm/hmcfs-%d-", u.who.UID)
	for _, file := range files {
		target, _ := os.Readlink(file) // a descriptor that is closed meanwhile does not match
		if name, ok := strings.CutPrefix(target, parent); ok {
			name, _, _ = strings.Cut(name, "/")
			return parent + name
		}
	}
	u.t.Fatalf("the daemon has nothing open below %s…", parent)
	return ""
}

// kill kills the holder and the daemon that it has started.
func (u *userMount) kill() {
	u.t.Helper()
	pid := u.status().PID
	kit.KillHolders(u.root)
	must(u.t, unix.Kill(pid, unix.SIGKILL))
	_ = u.cmd.Wait() // killed
	kit.Eventually(u.t, time.Minute, func() bool { return unix.Kill(pid, 0) != nil })
}

func (u *userMount) status() (s adminapi.Status) {
	u.t.Helper()
	out, err := u.command("status", "--json", u.dir).Output()
	must(u.t, err)
	must(u.t, json.Unmarshal(out, &s))
	return s
}

// deviceForAll lets every user open /dev/fuse, only in this process's mount namespace and
// during this test.
func deviceForAll(t *testing.T) {
	t.Helper()
	if os.Getenv("HMCFS_TEST_ISOLATED") == "" {
		t.Skip("no mount namespace of our own")
	}
	dir := filepath.Join(mnt.TempDir(t), "dev") // unmounted with the directory
	must(t, os.Mkdir(dir, 0o755))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID, "mode=755"))
	node := filepath.Join(dir, "fuse")
	const major, minor = 10, 229
	must(t, unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))))
	must(t, os.Chmod(node, 0o666))
	must(t, unix.Mount(node, "/dev/fuse", "", unix.MS_BIND, ""))
	t.Cleanup(func() {
		if err := unix.Unmount("/dev/fuse", unix.MNT_DETACH); err != nil {
			t.Errorf("give /dev/fuse back: %v", err)
		}
	})
}
