package holder

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
)

const (
	// mostTries bounds the starts in a row of daemons that do not stay by their own fault.
	mostTries = 8
	// mostKilled bounds those of daemons that are killed before they serve, as for want of memory.
	mostKilled = 100
	// mostFull bounds those of daemons that find no space on a disk, which somebody may free: more than a minute.
	mostFull = 20
	// firstPause is the default of Options.Pause. The pause doubles with each start, up to
	// longestPause.
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
	// settled bounds the life of a daemon that does not stay.
	settled = time.Second
	// startLimit bounds the time until a daemon owns the holder, which comes before it recovers
	// anything.
	startLimit = time.Minute
)

// ExitFull is the exit code of a daemon that was started again and finds no space on a disk (EX_TEMPFAIL).
const ExitFull = 75

// tries counts the daemons in a row that did not stay. The zero value has none.
type tries struct{ failed, killed, full int }

// countDeath counts the death of a daemon that began to serve at ready; zero if it never did.
func (t *tries) countDeath(ready time.Time) {
	if !ready.IsZero() && time.Since(ready) >= settled {
		*t = tries{}
	}
}

// countKill counts a daemon that another process or the kernel has killed, which is no fault of its own. served
// reports whether it had come to serve.
func (t *tries) countKill(served bool) {
	if served {
		*t = tries{}
		return
	}
	t.failed--
	t.killed++
}

// countFull counts a daemon that found no space on a disk.
func (t *tries) countFull() {
	t.failed--
	t.full++
}

// enough reports whether there have been too many.
func (t *tries) enough() bool {
	return t.failed >= mostTries || t.killed >= mostKilled || t.full >= mostFull
}

// pause returns the time to wait before the next start.
func (t *tries) pause(first time.Duration) time.Duration {
	switch grown := max(t.failed, t.full); {
	case grown > 0:
		return min(first<<(grown-1), longestPause)
	case t.killed > 0:
		return first
	}
	return 0
}

// revive starts daemons until one owns the holder, or until they have failed too often. owned is
// closed when one becomes the owner, also if another process has started it.
func (s *server) revive(owned <-chan struct{}) {
	s.awaitLast()
	for {
		s.mu.Lock()
		start, program := *s.start, s.kept[Program]
		if s.next != nil {
			start, program = *s.next, nil
		}
		pause, enough := s.tries.pause(s.pause), s.tries.enough()
		s.tries.failed++
		s.mu.Unlock()
		if enough {
			s.giveUp()
			return
		}
		select {
		case <-time.After(pause):
		case <-owned:
			return
		case <-s.over:
			return
		}
		cmd := exec.Command(pathOf(start.Path, program))
		cmd.Args, cmd.Env, cmd.Dir = start.Args, start.Env, start.Dir
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // those of the first daemon
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			s.log.Error("could not start a daemon again", zap.String("program", start.Path), zap.Error(err))
			s.startFailed()
			continue
		}
		setOOM(cmd.Process.Pid, s.oom)
		s.log.Info("started a daemon again", zap.Int("daemon", cmd.Process.Pid))
		exited := make(chan struct{})
		s.mu.Lock()
		s.last = exited
		s.mu.Unlock()
		go func() {
			defer close(exited)
			cmd.Wait() //nolint:errcheck // how it ended is read from its state
			s.processEnded(cmd.ProcessState)
		}()
		limit := time.NewTimer(startLimit)
		select {
		case <-owned:
			limit.Stop()
			return
		case <-limit.C:
			s.log.Error("a daemon that was started again does nothing; it is killed", zap.Int("daemon", cmd.Process.Pid))
			_ = cmd.Process.Kill() // it may have ended
			<-exited
			s.startFailed()
		case <-exited:
			limit.Stop()
			select {
			case <-owned: // by another one
				return
			default:
			}
			s.log.Error("a daemon that was started again has exited at once", zap.String("status", cmd.ProcessState.String()))
			s.startFailed()
		case <-s.over:
			limit.Stop()
			return
		}
	}
}

// pathOf returns the path of a program: the one by which it was started or, if another file is there
// now, that of its descriptor, which may be nil.
func pathOf(path string, program *os.File) string {
	if program == nil {
		return path
	}
	was, err := program.Stat()
	if err != nil {
		return path
	}
	if now, err := os.Stat(path); err == nil && os.SameFile(was, now) {
		return path
	}
	return fmt.Sprintf("/proc/self/fd/%d", program.Fd())
}

// startFailed is called when a daemon has not come to own the holder.
func (s *server) startFailed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetNext()
}

// otherStart bounds the time in which another process starts a daemon again.
const otherStart = time.Minute

// await gives up unless another process starts a daemon that owns the holder. owned is that of revive.
func (s *server) await(owned <-chan struct{}) {
	select {
	case <-time.After(otherStart):
		s.giveUp()
	case <-owned:
	case <-s.over:
	}
}

// awaitLast waits until the last daemon that the holder has started is gone, a moment after its
// connection, since the next start depends on how it ended.
func (s *server) awaitLast() {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last == nil {
		return
	}
	select {
	case <-last:
	case <-time.After(settled):
	case <-s.over:
	}
}

// processEnded is called when a daemon that the holder has started is gone.
func (s *server) processEnded(how *os.ProcessState) {
	status, ok := how.Sys().(syscall.WaitStatus)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ok && status.Signaled() && status.Signal() == syscall.SIGKILL:
		s.tries.countKill(s.served == how.Pid())
	case ok && status.Exited() && status.ExitStatus() == ExitFull:
		if s.tries.countFull(); s.tries.full == 1 {
			s.log.Warn("a disk has no space for the daemon; it is started again until there is some, for a minute")
		}
	}
}

// giveUp ends the mount, whose programs wait for an answer, and keeps the memory.
func (s *server) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner != nil {
		return
	}
	s.status.GaveUp = true
	for name := range s.kept {
		if strings.HasPrefix(name, mountPrefix) {
			if err := s.dropLocked(name); err != nil {
				s.log.Warn("could not close the descriptor of the mount", zap.Error(err))
			}
		}
	}
	s.log.Error("no daemon stays; programs get errors from the mount, and its memory is kept for the next hmcfs mount")
}
