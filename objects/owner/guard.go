package owner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// MaxPerUser bounds the requests of one user in a guard's process at a time. A request whose
	// descriptors don't close keeps its slot until they do.
	MaxPerUser = 8
	// guardLimit bounds the wait for an answer of the guard's process, and for a slot. Only a
	// hang exceeds it.
	guardLimit = 30 * time.Second
	// guardChunk bounds the bytes that are received at a time.
	guardChunk = 32 << 10
	// maxRights is the kernel's bound on the descriptors of one message.
	maxRights = 253
)

// ErrSilent reports that the file system of a descriptor does not answer.
var ErrSilent = errors.New("owner: a file system does not answer")

// errAbsent reports that the guard's process does not accept requests.
var errAbsent = fmt.Errorf("the guard process accepts no requests; another process takes the next: %w", ErrSilent)

// Guard receives, takes and opens files of other processes, in a process of its own. A process
// with a descriptor of a FUSE file system, which any user can mount, waits for that file
// system's server in almost every call, including close, which can't be interrupted, not even by
// SIGKILL. So a descriptor is passed to this process only if it is known to be of memory or of a
// device, which the kernel serves itself; for any other file an O_PATH descriptor is passed,
// which names the file and is closed without a request to any server.
//
// The guard's process is started with the first request, and exits when this process does. Its
// exit is not waited for.
//
// A nil Guard does the same without a process, for programs that accept nothing from untrusted
// processes. All methods may be called from any goroutine.
type Guard struct {
	command func() *exec.Cmd
	// limit bounds the wait for an answer, and for a slot.
	limit time.Duration

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// control accepts requests; nil while there is no process.
	// +checklocks:mu
	control *net.UnixConn
	// +checklocks:mu
	users map[uint32]*slots
	// held are the channels whose descriptors are still to be closed.
	// +checklocks:mu
	held map[*net.UnixConn]struct{}
	// +checklocks:mu
	refused uint64
}

// slots are the slots of one user; the Guard's mu guards them.
type slots struct {
	taken   int
	waiting []chan struct{}
}

// NewGuard returns a guard. command returns the command that runs ServeGuard on descriptor 3.
// limit bounds the wait for an answer, and for a slot; 0 means 30 s.
func NewGuard(command func() *exec.Cmd, limit time.Duration) *Guard {
	if limit == 0 {
		limit = guardLimit
	}
	return &Guard{command: command, limit: limit, users: map[uint32]*slots{}, held: map[*net.UnixConn]struct{}{}}
}

// GuardStats describes the effect of file systems that do not answer.
type GuardStats struct {
	// Held is the number of requests whose descriptors are still to be closed.
	Held int
	// Refused is the number of requests that found no slot.
	Refused uint64
}

// Stats returns the present figures.
func (g *Guard) Stats() GuardStats {
	if g == nil {
		return GuardStats{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return GuardStats{Held: len(g.held), Refused: g.refused}
}

// Close ends the guard's process, and waits neither for its exit nor for its requests in
// progress.
func (g *Guard) Close() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for c := range g.held {
		_ = c.Close() // which its reader notices
	}
	if g.control == nil {
		return nil
	}
	err := g.control.Close()
	g.control = nil
	return err
}

// guardRequest is a request to the guard's process, sent with a channel for the answer and,
// except for "open", with a descriptor.
type guardRequest struct {
	// Op is "receive", "take" or "open".
	Op   string `json:"op"`
	N    int    `json:"n,omitempty"`
	Path string `json:"path,omitempty"`
	// Flags and UID are arguments of openFile.
	Flags int    `json:"flags,omitempty"`
	UID   uint32 `json:"uid,omitempty"`
}

// guardAnswer is the answer to a guardRequest, sent with descriptors.
type guardAnswer struct {
	Data  []byte   `json:"data,omitempty"`
	Flags int      `json:"flags,omitempty"`
	Files int      `json:"files,omitempty"`
	Text  string   `json:"text,omitempty"`
	Kinds []string `json:"kinds,omitempty"`
	Errno int      `json:"errno,omitempty"`
}

// Received describes the result of one read from a connection.
type Received struct {
	// N is the number of bytes, which are at the start of the caller's buffer.
	N int
	// Files are the descriptors received with them, also on an error. They belong to the caller.
	Files []*os.File
	// Flags are those of recvmsg.
	Flags int
}

// Receive reads the available bytes from a connection, as many as fit, and the descriptors sent
// with them. The duration is limited only by the connection's deadline.
func (g *Guard) Receive(c *net.UnixConn, uid uint32, buf []byte) (Received, error) {
	if g == nil {
		return receiveHere(c, buf)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return Received{}, err
	}
	for {
		if err = awaitBytes(raw); err != nil {
			return Received{}, err
		}
		// Closing a connection waits for the calls that use its descriptor, so a duplicate is
		// used.
		var own int
		failure := raw.Control(func(fd uintptr) { own, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
		if err = errors.Join(failure, err); err != nil {
			return Received{}, err
		}
		a, files, err := g.ask(uid, guardRequest{Op: "receive", N: min(len(buf), guardChunk)}, own)
		_, answered := errors.AsType[*relayed](err)
		if err = errors.Join(err, unix.Close(own)); answered && errors.Is(err, unix.EAGAIN) {
			continue
		}
		return Received{N: copy(buf, a.Data), Files: files, Flags: a.Flags}, err
	}
}

// awaitBytes waits until there is something to read, or the end. It removes nothing from the
// connection: descriptors stay in it.
func awaitBytes(raw syscall.RawConn) error {
	var inner error
	err := raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, _, _, inner = unix.Recvmsg(int(fd), one[:], nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(inner, unix.EAGAIN)
	})
	return errors.Join(err, inner)
}

// receiveHere is Receive in this process.
func receiveHere(c *net.UnixConn, buf []byte) (Received, error) {
	rights := make([]byte, unix.CmsgSpace(maxRights*4))
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, rights)
	in := Received{N: n, Flags: flags}
	fds, rerr := parseRights(rights[:oobn])
	for i, fd := range fds {
		f, aerr := Adopt(fd, "received descriptor "+strconv.Itoa(i))
		if aerr != nil {
			rerr = aerr
			continue
		}
		in.Files = append(in.Files, f)
	}
	if rerr != nil {
		err = rerr // a read with a bad control message is not the end
	}
	return in, err
}

// ErrNoRights reports a control message that carries no descriptors.
var ErrNoRights = errors.New("owner: a control message that carries no descriptors")

// parseRights returns all descriptors of a control buffer, also on an error.
func parseRights(control []byte) (fds []int, err error) {
	if len(control) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("control message: %w: %w", ErrNoRights, err)
	}
	for i := range messages {
		some, perr := unix.ParseUnixRights(&messages[i])
		if perr != nil {
			err = ErrNoRights
			continue
		}
		fds = append(fds, some...)
	}
	return fds, err
}

// take takes a process's descriptor.
func (g *Guard) take(p *Process, n int, uid uint32) (*os.File, error) {
	return g.one(uid, guardRequest{Op: "take", N: n, Path: p.dir("fd/" + strconv.Itoa(n))}, int(p.file.Fd()))
}

// open calls openFile in the guard's process.
func (g *Guard) open(path string, flags int, uid uint32) (*os.File, error) {
	return g.one(uid, guardRequest{Op: "open", Path: path, Flags: flags, UID: uid})
}

// one makes a request that returns one descriptor.
func (g *Guard) one(uid uint32, q guardRequest, with ...int) (*os.File, error) {
	if g == nil {
		_, fds, err := obtain(q, with)
		if err != nil {
			return nil, err
		}
		return Adopt(fds[0], q.Path)
	}
	_, files, err := g.ask(uid, q, with...)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		for _, f := range files {
			_ = f.Close() // nothing was written through it
		}
		return nil, fmt.Errorf("%s: %d descriptors instead of one", q.Path, len(files))
	}
	return files[0], nil
}

// ask sends a request for a user and waits for its answer.
func (g *Guard) ask(uid uint32, q guardRequest, with ...int) (guardAnswer, []*os.File, error) {
	if err := g.enter(uid); err != nil {
		return guardAnswer{}, nil, err
	}
	c, control, err := g.send(q, with)
	if err != nil {
		g.leave(uid)
		return guardAnswer{}, nil, fmt.Errorf("request to the guard process: %w", err)
	}
	r, err := g.readReply(c)
	if errors.Is(err, errAbsent) {
		g.replace(control)
	}
	if r.over {
		_ = c.Close() // no more data will arrive
		g.leave(uid)
	} else {
		g.holdOn(c, uid)
	}
	if err != nil {
		for _, f := range r.files {
			_ = f.Close() // nothing was written through it
		}
		return r.answer, nil, err
	}
	return r.answer, r.files, nil
}

// enter occupies a slot of a user.
func (g *Guard) enter(uid uint32) error {
	g.mu.Lock()
	s := g.users[uid]
	if s == nil {
		s = &slots{}
		g.users[uid] = s
	}
	if s.taken < MaxPerUser {
		s.taken++
		g.mu.Unlock()
		return nil
	}
	given := make(chan struct{})
	s.waiting = append(s.waiting, given)
	g.mu.Unlock()
	select {
	case <-given:
		return nil
	case <-time.After(g.limit):
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(s.waiting, given)
	if i < 0 {
		return nil // the slot was assigned in the meantime
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	g.refused++
	return fmt.Errorf("%d requests of user %d wait for file systems that do not answer; stop those file systems first: %w",
		MaxPerUser, uid, ErrSilent)
}

// leave releases a slot, passing it to the first waiter if there is one.
func (g *Guard) leave(uid uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.users[uid]
	if len(s.waiting) > 0 {
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
		return
	}
	if s.taken--; s.taken == 0 {
		delete(g.users, uid)
	}
}

// reply holds everything that the guard's process sends for one request.
type reply struct {
	answer guardAnswer
	// files are the descriptors of the answer, also on an error.
	files []*os.File
	// over is true if nothing is left of the request: the guard's process has closed the
	// descriptors involved, or has exited.
	over bool
}

// readReply reads the reply to a request.
func (g *Guard) readReply(c *net.UnixConn) (reply, error) {
	if err := c.SetReadDeadline(time.Now().Add(g.limit)); err != nil {
		return reply{over: true}, err
	}
	text := make([]byte, 4*guardChunk)
	// The first message confirms that the guard's process has the request.
	switch err := confirmed(func() error { _, err := c.Read(text[:1]); return err }); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return reply{over: true}, errAbsent
	case err != nil:
		return reply{over: true}, g.silence(err)
	}
	var in Received
	err := confirmed(func() (err error) { in, err = receiveHere(c, text); return err })
	r := reply{files: in.Files}
	if err != nil {
		r.over = !errors.Is(err, os.ErrDeadlineExceeded)
		return r, g.silence(err)
	}
	if err = json.Unmarshal(text[:in.N], &r.answer); err == nil && r.answer.Files != len(r.files) {
		err = fmt.Errorf("%d of %d descriptors received; this process has too many files open", len(r.files), r.answer.Files)
	}
	if err == nil {
		err = r.answer.failure()
	}
	// The next message says that everything is closed except descriptors that may block forever.
	switch _, rerr := c.Read(text[:1]); {
	case errors.Is(rerr, io.EOF):
		r.over = true
	case rerr != nil:
		err = errors.Join(err, g.silence(rerr))
	}
	return r, err
}

// confirmed calls read, which reads one message of a channel, and once more if that returns the
// end of the channel. The kernel first looks for a message, and then whether the other end is
// closed (__unix_dgram_recvmsg), so a message that is sent, followed by a close, between the two
// looks like an end without a message. Nothing can be sent after the first end, so the second
// one is final.
func confirmed(read func() error) error {
	err := read()
	if errors.Is(err, io.EOF) {
		err = read()
	}
	return err
}

func (g *Guard) silence(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer in %v: %w", g.limit, ErrSilent)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the guard process has ended: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// holdOn keeps a user's slot occupied until the guard's process has closed its descriptors.
func (g *Guard) holdOn(c *net.UnixConn, uid uint32) {
	g.mu.Lock()
	closed := g.closed
	if !closed {
		g.held[c] = struct{}{}
	}
	g.mu.Unlock()
	_ = c.SetReadDeadline(time.Time{}) // closing the connection ends the read
	if closed {
		_ = c.Close()
	}
	go func() {
		// Descriptors of a late answer are not received, so the kernel closes them.
		_, _ = io.Copy(io.Discard, c) // until the end, or Close
		_ = c.Close()
		g.mu.Lock()
		delete(g.held, c)
		g.mu.Unlock()
		g.leave(uid)
	}()
}
