package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// Session is a hetero.Client of this process. It exists as long as its connection does: it
// ends with Close, and when the process exits for any reason. If the daemon ends, all later
// calls are hetero.ErrDisconnected. But if a holder starts a daemon again that has died, the session
// continues: calls wait, those in progress are asked again, and memory, keys and publications are
// as before.
type Session struct {
	client *Client
	id     string
	// continues is the time within which the session comes back to the daemon that follows one that has
	// died; 0 if it ends with the daemon.
	continues time.Duration
	// link is the connection to the daemon, or the last one.
	link atomic.Pointer[frames.Conn]
	// lost has an element when the daemon has died, and quit ends what waits for that.
	lost chan struct{}
	quit context.CancelFunc
	// gone is closed when the daemon, or Close, has ended the session, as soon as somebody
	// reads.
	gone chan struct{}
	// role has an element while no goroutine reads. Those that wait for an answer take it in
	// turns, and read for all: the one whose answer comes next needs no other goroutine.
	role chan struct{}
	// in belongs to the goroutine that has the role.
	in   receiver
	once sync.Once
	// sending is held while a frame is written.
	sending sync.Mutex
	// out is memory for the frames of calls.
	// +checklocks:sending
	out []byte
	// cut is true after a failure, when a part of a frame may have been sent, and while there is no daemon.
	// +checklocks:sending
	cut bool

	mu sync.Mutex
	// closed is set by Close.
	// +checklocks:mu
	closed bool
	// last is the number of the last call.
	// +checklocks:mu
	last uint64
	// answers are those of the calls in progress, by number; nil once the session has ended.
	// +checklocks:mu
	answers map[uint64]*answer
	// registered is memory that is registered again with the next daemon.
	// +checklocks:mu
	registered map[hetero.MemoryID]registration
	// files are the open files, by their handles, which are opened again with the next daemon.
	// +checklocks:mu
	files map[uint64]reopening
	// guarded is true once the end of the daemon is waited for beside the calls.
	// +checklocks:mu
	guarded bool
	// back is closed when the next daemon is there, or none came; nil while there is one. generation
	// counts them.
	// +checklocks:mu
	back chan struct{}
	// +checklocks:mu
	generation int
	// spare are answers to calls that are over, at most maxSpare.
	// +checklocks:mu
	spare []*answer
	calls sync.WaitGroup
	// values executes Set and Get.
	values *values
}

var _ hetero.Client = (*Session)(nil)

const (
	// endLimit bounds the time that the daemon takes to end a session.
	endLimit = 30 * time.Second
	// sendLimit bounds the time for which a daemon may read nothing; the session ends then.
	sendLimit = 30 * time.Second
	// sessionBuffer is the size, in bytes, of the buffer for received frames.
	sessionBuffer = frames.LongestPlain
)

// OpenSession opens a session with the daemon that listens at a socket: a client of
// heterogeneous objects for this user. The caller must close it. If the daemon has died, and its holder starts it again,
// OpenSession waits for that, for a minute at most.
//
// Errors: ErrNoDaemon; hetero.ErrNotAuthorized for a user without access; hetero.ErrBusy for
// one that has too many sessions.
func OpenSession(ctx context.Context, socket string) (*Session, error) {
	s, err := New(socket).openSession(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	return s, nil
}

func (c *Client) openSession(ctx context.Context) (*Session, error) {
	var hello greeting
	err := c.Revived(ctx, func(ctx context.Context) (err error) {
		hello, err = c.greeted(ctx, "")
		return err
	})
	if err != nil {
		return nil, c.heteroError(err)
	}
	return c.newSession(ctx, hello), nil
}

// newSession returns the session that a daemon has greeted.
func (c *Client) newSession(ctx context.Context, hello greeting) *Session {
	life, quit := context.WithCancel(context.WithoutCancel(ctx))
	s := &Session{
		client: c, id: hello.Session, continues: hello.continues, gone: make(chan struct{}), lost: make(chan struct{}, 1), quit: quit,
		answers: map[uint64]*answer{}, registered: map[hetero.MemoryID]registration{}, files: map[uint64]reopening{},
		role: make(chan struct{}, 1), in: receiver{in: hello.in, channel: hello.conn.Descriptors},
	}
	s.values = newValues(s)
	s.link.Store(hello.conn)
	s.in.of = s.answerTo
	s.role <- struct{}{}
	if s.continues > 0 {
		go s.continueWith(life)
	}
	return s
}

// source reads from the connection that a session has at the time.
type source struct{ io.Reader }

// first reads the greeting, and keeps the descriptors that come with it.
type first struct {
	conn  *net.UnixConn
	files []*os.File
}

// Read implements io.Reader.
func (f *first) Read(b []byte) (int, error) {
	var none *owner.Guard
	in, err := none.Receive(f.conn, 0, b)
	f.files = append(f.files, in.Files...)
	return max(in.N, 0), err
}

// greeting is the daemon's first answer.
type greeting struct {
	frames.Hello
	// continues is the time within which the client comes back to the daemon that follows; 0 if none does.
	continues time.Duration
	// conn is the connection, and in what is read of it.
	conn *frames.Conn
	in   *bufio.Reader
}

// greet requests a session, and reads the greeting of the daemon. before names one of a daemon before.
func greet(conn *net.UnixConn, in *bufio.Reader, before string) (greeting, error) {
	const request = "POST " + adminapi.PathSession + " HTTP/1.1\r\nHost: hmcfs\r\nConnection: Upgrade\r\nUpgrade: " +
		frames.Protocol + "\r\n%sContent-Length: 0\r\n\r\n"
	header := ""
	if before != "" {
		header = adminapi.SessionHeader + ": " + before + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, request, header); err != nil {
		return greeting{}, err
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return greeting{}, err
	}
	if resp.StatusCode == http.StatusOK { // a session without frames, whose answer has no end
		return greeting{}, &Error{Status: resp.StatusCode, Code: adminapi.CodeUnsupported, Text: fmt.Sprintf(
			"the daemon does not speak %s; use a client of its version, or update it with hmcfs upgrade", frames.Protocol)}
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		data, rerr := io.ReadAll(io.LimitReader(resp.Body, maxBody))
		_ = resp.Body.Close() // it has been read
		return greeting{}, errors.Join(rerr, failure(resp.StatusCode, data))
	}
	hello := receiver{in: in}
	h, p, err := hello.next()
	if err != nil {
		return greeting{}, err
	}
	if h.Kind != frames.KindHello {
		return greeting{}, errAnswer
	}
	parsed, err := frames.ParseHello(p.body)
	return greeting{Hello: parsed, continues: continuesOf(resp.Header)}, err
}

// continuesOf returns the time within which a client comes back to the daemon that follows one that has died; 0 if none follows.
func continuesOf(h http.Header) time.Duration {
	seconds, _ := strconv.Atoi(h.Get(adminapi.ContinuesHeader)) // none is 0
	return time.Duration(max(seconds, 0)) * time.Second
}

// Close ends the session and returns once the daemon has released everything that belonged to
// it. Calls in progress end with hetero.ErrClosed. It may be called more than once.
func (s *Session) Close() error {
	s.once.Do(s.end)
	return nil
}

func (s *Session) end() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.quit()
	s.link.Load().Shut(unix.SHUT_WR)
	s.attend(endLimit)
	_ = s.link.Load().Close() // no more data will arrive
	s.attend(endLimit)
	s.calls.Wait()
	s.values.unmap()
	s.mu.Lock()
	left := s.registered
	s.registered = nil
	s.mu.Unlock()
	for _, r := range left {
		adminapi.CloseAll(r.files)
	}
}

// attend reads until the session has ended, or for at most a time.
func (s *Session) attend(limit time.Duration) {
	none := &answer{session: s, came: make(chan struct{}, 1)}
	late := time.AfterFunc(limit, func() { none.fail(errLate) })
	defer late.Stop()
	for {
		select {
		case <-s.gone:
			return
		case <-none.came:
			return
		case <-s.role:
			s.readFor(none)
		}
	}
}

// ended returns the reason why no call can be made, or nil.
func (s *Session) ended() error {
	if s.isClosed() {
		return hetero.ErrClosed
	}
	select {
	case <-s.gone:
		return fmt.Errorf("%w: %s", hetero.ErrDisconnected, s.client.socket)
	default:
		return nil
	}
}

func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// start counts a call and gives it a number. The caller calls forget at the end.
func (s *Session) start(a *answer) error {
	s.mu.Lock()
	closed := s.closed
	if !closed && s.answers != nil {
		s.last++
		a.id = s.last
		a.mu.Lock()
		a.number = a.id
		a.mu.Unlock()
		s.answers[a.id] = a
		s.calls.Add(1)
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	if closed {
		return hetero.ErrClosed
	}
	return s.ended()
}

// forget ends a call: frames that still arrive for it are dropped.
func (s *Session) forget(a *answer) {
	s.mu.Lock()
	delete(s.answers, a.id)
	s.mu.Unlock()
	s.calls.Done()
}

// writeLocked writes a frame. If that fails the connection ends.
//
// +checklocks:s.sending
func (s *Session) writeLocked(frame []byte, more ...[]byte) {
	if s.cut {
		return
	}
	conn := s.link.Load()
	if err := conn.Write(frame, more...); err != nil {
		s.cut = true
		// Both end the session, if the daemon has not done so already.
		conn.Shut(unix.SHUT_WR)
		if !s.isClosed() { // Close reads until the daemon has ended the session
			conn.Shut(unix.SHUT_RD)
		}
	}
}
