package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Errors of Mount and Unmount.
var (
	// ErrBusy reports that files of the mount are open, or that a process is in one of its
	// directories.
	ErrBusy = errors.New("fs: mount is in use")
	// ErrMountPoint reports that the mount point can't be used as it is.
	ErrMountPoint = errors.New("fs: mount point unusable")
	// ErrNoFUSE reports that the machine or the user can't mount FUSE filesystems.
	ErrNoFUSE = errors.New("fs: FUSE is unavailable")
)

// Server is one mount. Its methods may be called from any goroutine.
type Server struct {
	fs   *filesystem
	fuse *fuse.Server
	// device is the descriptor at which a mount that is kept reads and writes.
	device int
	// left is the other end of what is there after Leave; nothing comes from it.
	left *os.File
	path string
	// gone is closed once the mount has ended and all handles are closed.
	gone chan struct{}
}

// serve answers requests until the mount ends.
func (s *Server) serve() {
	defer close(s.gone)
	s.fuse.Serve()
	s.fs.fleeting.end()
	s.Files().end()
	s.fs.log.Info("unmounted", zap.String("mount_point", s.path))
}

// answer waits until the mount answers.
func (s *Server) answer(ctx context.Context) error {
	answered := make(chan error, 1)
	go func() { answered <- apart(s.fuse.WaitMount) }() // WaitMount opens a file of the mount
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// abort removes a mount that was never announced.
func (s *Server) abort() {
	if err := s.unmount(unix.MNT_DETACH); err != nil {
		s.fs.log.Error("a mount that failed to start could not be removed", zap.Error(err))
		return
	}
	<-s.gone
}

// Wait returns once the mount has ended, whichever process unmounted it, and its handles
// are closed.
func (s *Server) Wait() { <-s.gone }

const (
	// unmountTries bounds the attempts on a busy mount: the kernel releases files that were
	// just closed a moment later.
	unmountTries = 6
	unmountPause = 10 * time.Millisecond
	// streamTries bounds the additional attempts while programs still have to read the ends
	// of their streams.
	streamTries = 4
)

// Unmount ends the mount and returns once its handles are closed. If the mount has already
// ended it does nothing. Readers of .hmcfs/events alone do not keep the mount busy: their
// streams end.
//
// Errors: ErrBusy, the context's, and the kernel's.
func (s *Server) Unmount(ctx context.Context) error {
	pause, tries := unmountPause, unmountTries
	for try := 1; ; try++ {
		err := s.unmount(0)
		if err == nil || s.isGone() {
			break
		}
		if !errors.Is(err, ErrBusy) || try == tries {
			return err
		}
		if s.fs.endStreams() {
			tries = unmountTries + streamTries
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-s.gone:
		case <-ctx.Done():
			return fmt.Errorf("unmount %s: %w", s.path, ctx.Err())
		}
	}
	select {
	case <-s.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("unmount %s: %w", s.path, ctx.Err())
	}
}

func (s *Server) isGone() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// unmount makes one attempt.
func (s *Server) unmount(flags int) error {
	if os.Geteuid() != 0 {
		return s.unmountAsUser(flags)
	}
	err := unix.Unmount(s.path, flags)
	switch {
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("unmount %s: %w: close the open files (list them with: lsof +f -- %s)", s.path, ErrBusy, s.path)
	case err != nil:
		return fmt.Errorf("unmount %s: %w", s.path, err)
	}
	return nil
}

func (s *Server) unmountAsUser(flags int) error {
	helper, err := fusermount()
	if err != nil {
		return err
	}
	args := []string{"-u", s.path}
	if flags&unix.MNT_DETACH != 0 {
		args = []string{"-u", "-z", s.path}
	}
	out, err := exec.Command(helper, args...).CombinedOutput()
	out = bytes.TrimSpace(out)
	if err == nil {
		return nil
	}
	if s.fs.files.len()+s.fs.dirs.len() > 0 {
		return fmt.Errorf("unmount %s: %w: %s", s.path, ErrBusy, out)
	}
	return fmt.Errorf("unmount %s: %w: %s", s.path, err, out)
}
