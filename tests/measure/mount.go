package measure

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

// Mount is one mount of the program that is measured.
type Mount struct {
	// Program is hmcfs, and Point where it is mounted. The runtime directory is beside it, and so
	// is the state directory, unless State is another one.
	Program, Point, State string
	// Command makes a command where the mount is seen; nil means here.
	Command Command
	// PID is the daemon's process, and Took the duration of the command that mounted it.
	PID  int
	Took time.Duration
}

// Start mounts, with further flags of hmcfs mount.
func (m *Mount) Start(ctx context.Context, flags ...string) error {
	if m.Command == nil {
		m.Command = exec.CommandContext
	}
	if m.State == "" {
		m.State = m.Point + ".state"
	}
	if err := os.MkdirAll(m.Point, 0o755); err != nil {
		return err
	}
	args := append([]string{"mount", "--state-dir", m.State, "--runtime-dir", m.Runtime()}, flags...)
	begin := time.Now()
	_, err := Output(m.Command(ctx, m.Program, append(args, m.Point)...))
	m.Took = time.Since(begin)
	if err != nil {
		return err
	}
	st, err := m.Status(ctx)
	if err != nil {
		return errors.Join(err, m.Unmount(ctx))
	}
	m.PID = st.PID
	return nil
}

// Devices returns the flags for devices.
func Devices(specs ...string) []string {
	var flags []string
	for _, spec := range specs {
		flags = append(flags, "--device", spec)
	}
	return flags
}

// Runtime returns the daemon's runtime directory.
func (m *Mount) Runtime() string { return m.Point + ".run" }

// Socket returns the path of the daemon's socket.
func (m *Mount) Socket() string { return m.Runtime() + "/admin.sock" }

// Path returns a path on the mount.
func (m *Mount) Path(parts ...string) string {
	return filepath.Join(append([]string{m.Point}, parts...)...)
}

// Status asks the daemon, without having it count objects, which takes memory.
func (m *Mount) Status(ctx context.Context) (adminapi.Status, error) {
	return client.New(m.Socket()).Status(ctx, false)
}

// Unmount ends the daemon, with flags of hmcfs umount. One that does not end is killed, and
// its mounts are detached. It works after the end of the context, too: it is how a run cleans
// up.
func (m *Mount) Unmount(ctx context.Context, flags ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	args := append(append([]string{"umount"}, flags...), m.Point)
	_, err := Output(m.Command(ctx, m.Program, args...))
	if err == nil {
		return nil
	}
	// What is not there any more need not be ended.
	_ = unix.Unmount(m.Point, unix.MNT_DETACH)
	_ = m.Command(ctx, "umount", "-l", m.Point).Run() // it may be mounted elsewhere
	if m.PID > 0 {
		_ = unix.Kill(m.PID, unix.SIGKILL)
	}
	m.DropHost()
	return err
}

// DropHost removes the host tier that a dead daemon, or one that was told to keep it, has
// left.
func (m *Mount) DropHost() { _ = unix.Unmount(m.Runtime()+"/host", unix.MNT_DETACH) }
