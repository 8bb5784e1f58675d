package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/netns"
)

// startLimit bounds the start of a daemon on a busy machine.
const startLimit = 60 * time.Second

// Node is the mount of one machine.
type Node struct {
	Name  string
	Space *netns.Space
	// Dir is the mount point.
	Dir string

	lab *Lab
	log string

	mu sync.Mutex
	// +checklocks:mu
	process *os.Process
	// +checklocks:mu
	ended chan struct{}
	// +checklocks:mu
	deaths int
}

// RuntimeDir returns the daemon's runtime directory.
func (n *Node) RuntimeDir() string { return filepath.Join(filepath.Dir(n.Dir), "run") }

// StateDir returns the daemon's state directory.
func (n *Node) StateDir() string { return filepath.Join(n.lab.opts.State, n.Name, "state") }

// Address returns the address at which the daemon listens for other nodes.
func (n *Node) Address() string { return n.Space.IPv4 + ":" + port }

// PID returns the daemon's process ID, or 0.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return 0
	}
	return n.process.Pid
}

// Path returns a path in the mount.
func (n *Node) Path(elem ...string) string {
	return filepath.Join(append([]string{n.Dir}, elem...)...)
}

// At returns a path, in this node's mount, to a file of another node or of this one.
func (n *Node) At(other *Node, elem ...string) string {
	if other == n {
		return n.Path(elem...)
	}
	return n.Path(append([]string{"nodes", other.Name}, elem...)...)
}

// Command returns a command that runs hmcfs: it finds the mount by the paths or --mount.
func (n *Node) Command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, n.lab.opts.Program, args...)
}

// Start starts the daemon, and returns when the mount answers.
func (n *Node) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process != nil {
		return fmt.Errorf("node %s runs already", n.Name)
	}
	process, ended, err := n.launch()
	if err != nil {
		return fmt.Errorf("start node %s: %w", n.Name, err)
	}
	n.process, n.ended = process, ended
	return n.answers(ctx, ended)
}

// answers waits until the mount answers or its daemon has ended.
func (n *Node) answers(ctx context.Context, ended chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.ReadFile(n.Path(".hmcfs", "version")); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ended:
			return fmt.Errorf("node %s: hmcfs mount has ended; see %s", n.Name, n.log)
		case <-ctx.Done():
			return fmt.Errorf("node %s: the mount does not answer: %w", n.Name, ctx.Err())
		}
	}
}

// launch starts the process, and closes ended at its end.
func (n *Node) launch() (process *os.Process, ended chan struct{}, err error) {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = log.Close() }() // the daemon has its own
	var args []string
	if n.lab.opts.Before != nil {
		args = n.lab.opts.Before(n.Name)
	}
	args = append(args, n.lab.opts.Program, "mount", "-f", "--state-dir", n.StateDir(), "--runtime-dir", n.RuntimeDir())
	args = append(append(args, n.lab.flags(n.Name)...), "--", n.Dir)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	// A signal at the terminal must not reach the daemon.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err = n.Space.Start(cmd); err != nil {
		return nil, nil, err
	}
	ended = make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log has the outcome
		close(ended)
	}()
	return cmd.Process, ended, nil
}

// Kill ends the daemon and its holder with SIGKILL and returns when the daemon is dead.
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return
	}
	_ = n.process.Signal(unix.SIGSTOP) // it may be about to start a holder
	kit.KillHolders(n.RuntimeDir())
	_ = n.process.Signal(unix.SIGKILL) // it may have ended on its own
	<-n.ended
	// If it has, the holder may have started another one.
	kit.KillBelow(filepath.Dir(n.RuntimeDir()), func(args []string) bool { return slices.Contains(args, "mount") })
	n.process = nil
	n.deaths++
}

// Unmount ends the daemon as a user does, with flags of hmcfs umount.
func (n *Node) Unmount(ctx context.Context, flags ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if out, err := n.Command(ctx, append(append([]string{"umount"}, flags...), n.Dir)...).CombinedOutput(); err != nil {
		return fmt.Errorf("unmount node %s: %w: %s", n.Name, err, out)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := over(ctx, n.ended); err != nil {
		return fmt.Errorf("the daemon of node %s has not ended: %w", n.Name, err)
	}
	n.process = nil
	return nil
}

// over waits for the end of a daemon.
func over(ctx context.Context, ended chan struct{}) error {
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Deaths returns the number of daemons that have ended.
func (n *Node) Deaths() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.deaths
}

// Runs returns an error if the daemon has ended unexpectedly.
func (n *Node) Runs() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return nil
	}
	select {
	case <-n.ended:
		return fmt.Errorf("the daemon of node %s has ended by itself; see %s", n.Name, n.log)
	default:
		return nil
	}
}

// Pause stops the daemon without ending it, or resumes it.
func (n *Node) Pause(pause bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return errors.New("no daemon")
	}
	if pause {
		return n.process.Signal(unix.SIGSTOP)
	}
	return n.process.Signal(unix.SIGCONT)
}

// Cluster returns the node's view of the cluster.
func (n *Node) Cluster(ctx context.Context) (all adminapi.Cluster, err error) {
	text, err := n.Command(ctx, "nodes", "--json", n.Dir).Output()
	if err != nil {
		return all, fmt.Errorf("hmcfs nodes on %s: %w", n.Name, err)
	}
	return all, json.Unmarshal(text, &all)
}

// close ends the daemon and removes the mount.
func (n *Node) close() error {
	n.Kill()
	err := unix.Unmount(n.Dir, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %w", n.Dir, err)
	}
	return nil
}
