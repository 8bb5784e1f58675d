package mnt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// patience bounds the time that a daemon takes to mount or to end. It is generous: the race
// detector and a busy machine slow both down.
const patience = 60 * time.Second

// Options configures a mount of a test.
type Options struct {
	// Devices are the device specs. Default: host, sim:0 and sim:1 of 64 MiB each.
	Devices []string
	// Found mounts the devices found on the machine: no device is given.
	Found bool
	// AllowOther grants access to other users.
	AllowOther bool
	// Extra holds further flags of hmcfs mount.
	Extra []string
	// Env is added to the daemon's environment.
	Env []string
	// Enter, if not nil, is called on the thread that starts the daemon, to move it into a
	// namespace: see netns.Space.
	Enter func() error
	// Umask is the daemon's umask; 0 means 022.
	Umask int
	// Faulty puts a wrapper around each device that follows M.Faults. By default devices are not
	// wrapped.
	Faulty bool
}

// DefaultDevices returns the devices that are mounted if Options has none.
func DefaultDevices() []string {
	return []string{"host,size=64MiB", "sim:0,size=64MiB", "sim:1,size=64MiB"}
}

// M is a mount of a test.
type M struct {
	// Dir is the mount point.
	Dir string
	// StateDir and RuntimeDir are the directories of the daemon.
	StateDir, RuntimeDir string
	// Faults controls the faults of the devices, with Options.Faulty.
	Faults Faults

	t      testing.TB
	opts   Options
	root   string
	daemon *daemon
}

// Mount mounts, and returns when the mount answers. At the end of the test the mount, its
// daemon and all their files are removed.
func Mount(t testing.TB, o Options) *M {
	t.Helper()
	m := Prepare(t, o)
	m.Start()
	return m
}

// Prepare creates the directories of a mount without mounting.
func Prepare(t testing.TB, o Options) *M {
	t.Helper()
	kit.Require(t, "fuse", "root")
	if len(o.Devices) == 0 && !o.Found {
		o.Devices = DefaultDevices()
	}
	if o.Umask == 0 {
		o.Umask = 0o022
	}
	root := TempDir(t)
	m := &M{
		Dir: filepath.Join(root, "mnt"), StateDir: filepath.Join(root, "state"), RuntimeDir: filepath.Join(root, "run"),
		t: t, opts: o, root: root,
	}
	if err := os.Mkdir(m.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if o.Faulty {
		m.Faults = NewFaults(t, root)
	}
	t.Cleanup(m.clear)
	return m
}

// TempDir returns a directory for the test that all users may enter, unlike the one of package
// testing. Its path is short enough for a socket. It is removed at the end of the test with
// everything mounted in it.
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(Base(), "") //nolint:usetesting // that one is closed to others, and too long
	if err != nil {
		t.Fatalf("is TestMain mnt.Main? %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Clear(dir); err != nil {
			t.Errorf("clear up: %v", err)
		}
	})
	return dir
}

// Path returns a path in the mount: m.Path("sim0", "a").
func (m *M) Path(elem ...string) string {
	return filepath.Join(append([]string{m.Dir}, elem...)...)
}

// Start mounts again, with the same options, after a mount was ended or killed.
func (m *M) Start() {
	m.t.Helper()
	// The test may notice the end of the process a moment before this does.
	if m.daemon != nil && !m.daemon.ends() {
		m.t.Fatal("the daemon is still there")
	}
	m.Begin()
	kit.Eventually(m.t, patience, m.answers)
	if m.daemon.ended() {
		m.t.Fatalf("hmcfs mount ended: %v\n%s", m.daemon.err, m.Log())
	}
}

// Begin is Start without the wait for the mount, which may fail.
func (m *M) Begin() {
	m.t.Helper()
	m.daemon = m.startDaemon(m.args(), m.env())
}

// answers returns nil once the mount can be used. The end of the daemon ends the wait, too.
func (m *M) answers() error {
	if m.daemon.ended() {
		return nil
	}
	if _, err := m.status(); err != nil {
		return fmt.Errorf("the mount does not answer: %w\n%s", err, m.Log())
	}
	_, err := os.Stat(m.Path(".hmcfs", "version"))
	return err
}

func (m *M) args() []string {
	args := []string{"mount", "-f", "--state-dir", m.StateDir, "--runtime-dir", m.RuntimeDir}
	for _, d := range m.opts.Devices {
		args = append(args, "--device", d)
	}
	if m.opts.AllowOther {
		args = append(args, "--allow-other")
	}
	return append(append(args, m.opts.Extra...), "--", m.Dir)
}

func (m *M) env() []string {
	env := append(os.Environ(), fmt.Sprintf("%s=%o", umaskEnv, m.opts.Umask))
	if m.Faults != "" {
		env = append(env, m.Faults.Env())
	}
	return append(env, m.opts.Env...)
}

// Kill ends the daemon and its holder with SIGKILL and returns when they are dead. Their mounts
// stay, without a server.
func (m *M) Kill() {
	m.t.Helper()
	_ = kit.StopProcess(m.daemon.process.Pid) // it may be about to start a holder; or it has ended
	kit.KillHolders(m.root)
	m.KillDaemon()
}

// KillDaemon ends the first daemon with SIGKILL and returns when it is dead. Its holder, if it has one,
// starts another.
func (m *M) KillDaemon() {
	m.t.Helper()
	m.daemon.signal(m.t, syscall.SIGKILL)
	m.daemon.await(m.t)
}

// Umount runs hmcfs umount with further flags, such as --keep, and returns when the daemon has
// ended. The daemon must exit with code 0.
func (m *M) Umount(flags ...string) {
	m.t.Helper()
	args := append(append([]string{"umount"}, flags...), "--", m.Dir)
	if _, err := m.Run(args...); err != nil {
		m.t.Fatalf("hmcfs umount: %v\nthe daemon's log:\n%s", err, m.Log())
	}
	m.daemon.await(m.t)
	if m.daemon.err != nil {
		m.t.Fatalf("the daemon ended: %v\n%s", m.daemon.err, m.Log())
	}
}

// Remount unmounts, keeping everything that can outlive a mount, and mounts again.
func (m *M) Remount() {
	m.t.Helper()
	m.Umount("--keep")
	m.Start()
}

// Log returns the output of the daemon and of its predecessors.
func (m *M) Log() string {
	data, err := os.ReadFile(m.logPath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Errorf("read the daemon's log: %v", err)
	}
	return string(data)
}

func (m *M) logPath() string { return filepath.Join(m.root, "log") }

// clear unmounts as a user does or, if that fails, by force. If the test has failed, it prints
// the daemon's log.
func (m *M) clear() {
	m.t.Helper()
	if m.daemon == nil {
		return
	}
	if m.mounted() && !m.daemon.ended() {
		out, err := m.Run("umount", "--", m.Dir)
		if err != nil {
			m.t.Errorf("unmount at the end of the test: %v\n%s", err, out)
		}
	}
	if m.mounted() {
		_ = unix.Unmount(m.Dir, unix.MNT_DETACH) // Clear, called by TempDir, reports failures
	}
	if !m.daemon.ends() {
		m.t.Errorf("the daemon does not end after the unmount; its goroutines are in its log")
		m.daemon.signal(m.t, syscall.SIGQUIT)
		if !m.daemon.ends() {
			m.daemon.signal(m.t, syscall.SIGKILL)
			m.daemon.ends()
		}
	}
	if m.t.Failed() {
		m.t.Logf("the daemon's log:\n%s", m.Log())
	}
}

// mounted reports whether there is a mount at the mount point.
func (m *M) mounted() bool { return len(MountedBelow(m.Dir)) > 0 }

// MountedBelow lists the mount points at and below a directory.
func MountedBelow(dir string) []string {
	mounts, err := place.Mounts()
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, m := range mounts {
		if m.MountPoint == dir || strings.HasPrefix(m.MountPoint, dir+"/") {
			out = append(out, m.MountPoint)
		}
	}
	return out
}
