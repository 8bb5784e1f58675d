package owner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ServeGuard is the main function of the guard's process. It returns when the process that sends
// requests has exited; the caller must then exit, even if requests are in progress.
func ServeGuard(control *os.File) error {
	c, err := connOf(control)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	text := make([]byte, guardChunk)
	rights := make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, _, _, err := c.ReadMsgUnix(text, rights)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		fds, err := parseRights(rights[:oobn])
		var q guardRequest
		if err == nil {
			err = json.Unmarshal(text[:n], &q)
		}
		if err != nil || len(fds) == 0 {
			// This process has run out of descriptors, but continues to serve others: the
			// requester sees the end of the channel.
			closeAll(fds)
			continue
		}
		if _, err = unix.Write(fds[0], []byte{1}); err != nil {
			closeAll(fds)
			continue
		}
		go guarded(q, fds[0], fds[1:])
	}
}

// guarded answers one request.
func guarded(q guardRequest, channel int, with []int) {
	c, err := connOf(os.NewFile(uintptr(channel), "answer"))
	if err != nil {
		closeAll(with)
		return
	}
	defer func() { _ = c.Close() }() // which signals that everything is closed
	a, got, err := obtain(q, with)
	by, unnamed := sort(got)
	a.describe(errors.Join(err, unnamed))
	a.Files = len(by.passed)
	text, err := json.Marshal(a)
	if err == nil {
		// The requester may be gone: the descriptors are closed all the same.
		_, _, err = c.WriteMsgUnix(text, rightsOf(by.passed), nil)
	}
	closeAll(with)
	closeAll(by.ours)
	if len(by.theirs) == 0 {
		return
	}
	if err == nil {
		_, _ = c.Write([]byte{1})
	}
	closeAll(by.theirs) // each may block forever
}

func rightsOf(fds []int) []byte {
	if len(fds) == 0 {
		return nil
	}
	return unix.UnixRights(fds...)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // nothing was written through it
	}
}

// obtain carries out a request.
func obtain(q guardRequest, with []int) (a guardAnswer, fds []int, err error) {
	switch {
	case q.Op == "open":
		var fd int
		if fd, err = openFile(q.Path, q.Flags, q.UID); err == nil {
			fds = []int{fd}
		}
	case len(with) != 1:
		err = fmt.Errorf("operation %s: %d descriptors instead of one", q.Op, len(with))
	case q.Op == "take":
		var fd int
		if fd, err = unix.PidfdGetfd(with[0], q.N, 0); err == nil {
			fds = []int{fd}
		}
	case q.Op == "receive":
		a.Data = make([]byte, q.N)
		rights := make([]byte, unix.CmsgSpace(maxRights*4))
		var n, oobn int
		n, oobn, a.Flags, _, err = unix.Recvmsg(with[0], a.Data, rights, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		a.Data = a.Data[:max(n, 0)]
		if err == nil {
			fds, err = parseRights(rights[:oobn])
		}
	default:
		err = fmt.Errorf("unknown operation: %q", q.Op)
	}
	return a, fds, err
}

// sorted groups descriptors by their further treatment.
type sorted struct {
	// passed are sent to the requester.
	passed []int
	// ours are closed at once; closing theirs involves their file systems.
	ours, theirs []int
}

// sort separates the descriptors that may be passed on from the others, for each of which an
// O_PATH descriptor, which only names the file, is passed instead. On an error, one of these is
// missing from passed, and those after it are shifted.
func sort(fds []int) (by sorted, err error) {
	for _, fd := range fds {
		if isKernels(fd) {
			by.passed, by.ours = append(by.passed, fd), append(by.ours, fd)
			continue
		}
		by.theirs = append(by.theirs, fd)
		name, failed := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_PATH|unix.O_CLOEXEC, 0)
		if failed != nil {
			err = fmt.Errorf("reopen a descriptor with O_PATH: %w", failed)
			continue
		}
		by.passed, by.ours = append(by.passed, name), append(by.ours, name)
	}
	return by, err
}

// isKernels reports whether a descriptor is of memory, a character device, a local socket or an
// inode without a file system, such as a DMA buffer: the kernel closes those itself. The same
// holds for O_PATH descriptors.
func isKernels(fd int) bool {
	if inMemory(fd) {
		return true
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil && flags&unix.O_PATH != 0 {
		return true
	}
	st, err := look(fd)
	if err != nil {
		return false
	}
	kind := st.Mode & unix.S_IFMT
	return kind == unix.S_IFCHR || kind == 0 || kind == unix.S_IFSOCK && isLocal(fd)
}

// failures returns the errors that have a name in the protocol between the two processes.
func failures() map[string]error {
	return map[string]error{"memory": ErrNotMemory, "denied": ErrDenied, "gone": ErrGone, "rights": ErrNoRights}
}

// isLocal reports whether a socket is local to this machine. Closing it never blocks: data that
// was sent to it and not received is released by the kernel without a flush. A network socket
// may linger.
func isLocal(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return err == nil && domain == unix.AF_UNIX
}

// describe stores an error in an answer.
func (a *guardAnswer) describe(err error) {
	if err == nil {
		return
	}
	a.Text = err.Error()
	for name, known := range failures() {
		if errors.Is(err, known) {
			a.Kinds = append(a.Kinds, name)
		}
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		a.Errno = int(errno)
	}
}

// failure returns the error stored in an answer.
func (a *guardAnswer) failure() error {
	if a.Text == "" {
		return nil
	}
	f := &relayed{text: a.Text}
	for _, name := range a.Kinds {
		if known := failures()[name]; known != nil {
			f.causes = append(f.causes, known)
		}
	}
	if a.Errno != 0 {
		f.causes = append(f.causes, syscall.Errno(a.Errno))
	}
	return f
}

// relayed is an error of the guard's process.
type relayed struct {
	text   string
	causes []error
}

func (r *relayed) Error() string   { return r.text }
func (r *relayed) Unwrap() []error { return r.causes }
