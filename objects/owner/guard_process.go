package owner

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// send sends a request to the guard's process, which is started if there is none. It returns the
// channel for the answer, and the connection by which the request was sent.
func (g *Guard) send(q guardRequest, with []int) (ours, control *net.UnixConn, err error) {
	ours, theirs, err := channel()
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(q)
	if err == nil {
		control, err = g.sendText(text, append([]int{int(theirs.Fd())}, with...))
	}
	if err = errors.Join(err, theirs.Close()); err != nil {
		return nil, nil, errors.Join(err, ours.Close())
	}
	return ours, control, nil
}

func (g *Guard) sendText(text []byte, fds []int) (*net.UnixConn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range 2 {
		if g.closed {
			return nil, net.ErrClosed
		}
		if g.control == nil {
			if err := g.startLocked(); err != nil {
				return nil, err
			}
		}
		err := g.control.SetWriteDeadline(time.Now().Add(g.limit))
		if err == nil {
			_, _, err = g.control.WriteMsgUnix(text, unix.UnixRights(fds...), nil)
		}
		if err == nil {
			return g.control, nil
		}
		gone := errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
		if !gone && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		// The guard's process was killed, or does not read. Requests in progress see the end of
		// their channel.
		_ = g.control.Close()
		g.control = nil
		if !gone {
			return nil, errAbsent
		}
	}
	return nil, errors.New("the guard process ends right after its start")
}

// replace makes the next request start another process instead of one that accepts no requests.
// That may be a process that was killed while it waits for a file system: the kernel keeps its
// descriptors open until that wait is over, so no end is visible.
func (g *Guard) replace(control *net.UnixConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.control == control {
		_ = control.Close()
		g.control = nil
	}
}

// startLocked starts the process.
//
// +checklocks:g.mu
func (g *Guard) startLocked() error {
	ours, theirs, err := channel()
	if err != nil {
		return err
	}
	cmd := g.command()
	cmd.Dir = "/" // it keeps no file system busy
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ^C must not reach it
	if err = errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return errors.Join(err, ours.Close())
	}
	go cmd.Wait() //nolint:errcheck // its exit status is not needed, and it may never exit
	g.control = ours
	return nil
}

// channel returns the two ends of a connection that preserves message boundaries.
func channel() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create a channel: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "guard")
	if ours, err = connOf(os.NewFile(uintptr(fds[0]), "guard")); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// connOf makes a connection of a socket, and takes ownership of the socket.
func connOf(f *os.File) (*net.UnixConn, error) {
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("create a connection for a channel: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("unexpected channel type %T", c), c.Close())
	}
	return u, nil
}
