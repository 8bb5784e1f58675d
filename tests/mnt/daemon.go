package mnt

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// daemon is one run of hmcfs mount -f.
type daemon struct {
	process *os.Process
	// done is closed when the process has ended, with err.
	done chan struct{}
	err  error
}

// startDaemon starts hmcfs with its output in the log.
func (m *M) startDaemon(args, env []string) *daemon {
	m.t.Helper()
	log, err := os.OpenFile(m.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the daemon has its own
	cmd := Itself(programName, args...)
	cmd.Env, cmd.Dir = env, "/"
	cmd.Stdout, cmd.Stderr = log, log
	// A signal at the tests' terminal must not reach the daemon.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	d := &daemon{done: make(chan struct{})}
	started := make(chan error)
	go onThread(func() { d.run(cmd, m.opts.Enter, started) })
	if err := <-started; err != nil {
		m.t.Fatalf("start the daemon: %v", err)
	}
	return d
}

// run starts the command and waits for its end on one thread: the parent-death signal is sent at
// the end of the thread that started the child.
func (d *daemon) run(cmd *exec.Cmd, enter func() error, started chan<- error) {
	var err error
	if enter != nil {
		err = enter()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		close(d.done)
		started <- err
		return
	}
	d.process = cmd.Process
	started <- nil
	d.err = cmd.Wait()
	close(d.done)
}

// ended reports whether the daemon is dead.
func (d *daemon) ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// ends waits for the end, at most for the time patience, and reports whether it has come.
func (d *daemon) ends() bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-d.done:
		return true
	case <-timer.C:
		return false
	}
}

// await waits for the end, and fails the test if the daemon does not end.
func (d *daemon) await(t testing.TB) {
	t.Helper()
	if !d.ends() {
		t.Fatalf("the daemon has not ended within %v", patience)
	}
}

// signal sends a signal to a daemon that may have ended already.
func (d *daemon) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := d.process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) && !d.ended() {
		t.Errorf("signal the daemon: %v", err)
	}
}
