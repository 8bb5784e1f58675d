package rankserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/env"
	"github.com/hmcfs/hmcfs/transport/job"
	"github.com/hmcfs/hmcfs/transport/nowait"
)

// MaxCalls bounds the calls that a rank may have in progress.
const MaxCalls = 4096

// server serves one rank.
type server struct {
	conn *net.UnixConn
	// socket is that of conn; its calls do not disturb copies in progress.
	socket *nowait.Socket
	job    *job.Job
	group  *collective.Group
	memory *memory
	// calls counts the goroutines of calls.
	calls sync.WaitGroup
	// sequence holds the calls in which all ranks take part.
	sequence chan func()

	// writing is held while a frame is sent.
	writing sync.Mutex

	mu sync.Mutex
	// active holds the calls in progress.
	// +checklocks:mu
	active map[uint64]context.CancelFunc
	// windows are those of all ranks.
	// +checklocks:mu
	windows *job.Windows
}

// frame is a frame of the rank.
type frame struct {
	head frames.Header
	body [callSize]byte
}

// Serve joins the job that the environment describes, and serves the rank at the other end of a
// connection until it closes the connection or the context ends.
func Serve(ctx context.Context, conn *net.UnixConn, getenv func(string) string) error {
	socket, err := nowait.NewSocket(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &server{
		conn: conn, socket: socket, memory: newMemory(), active: map[uint64]context.CancelFunc{}, sequence: make(chan func(), MaxCalls),
	}
	joined, reading := make(chan struct{}), make(chan struct{})
	// The rank may end while this process waits for the others.
	go func() {
		cancel(s.read(ctx, joined))
		close(reading)
	}()
	err = s.join(ctx, getenv)
	if err == nil {
		err = s.serve(ctx, joined)
	} else if ctx.Err() == nil {
		err = s.fail(0, err)
	}
	cancel(nil)
	// No call starts any more when its job ends.
	err = errors.Join(err, conn.SetReadDeadline(time.Unix(1, 0)))
	<-reading
	err = errors.Join(err, s.leave(ctx))
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return errors.Join(err, cause)
	}
	_ = s.send(frames.Begin(nil, frames.KindEnded, 0, 0), -1) // the rank may have ended
	return err
}

// join joins the job and makes the group of all ranks.
func (s *server) join(ctx context.Context, getenv func(string) string) error {
	o, err := job.FromEnv(getenv)
	if err != nil {
		return err
	}
	set, err := env.Parse(getenv)
	if err != nil {
		return err
	}
	s.job, err = job.Init(ctx, set.Job(o))
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("another process is rank %d already; use its communicator, or start more ranks: %w", o.Rank, err)
	}
	if err != nil {
		return err
	}
	s.group, err = collective.New(ctx, s.job.World().Fabric(), set.Options(collective.Options{}))
	return err
}

// leave ends what join has begun.
func (s *server) leave(ctx context.Context) error {
	s.calls.Wait()
	if s.job == nil {
		return nil
	}
	var errs []error
	if s.group != nil {
		errs = append(errs, s.group.Close()) //nolint:contextcheck // as below
	}
	errs = append(errs, s.job.Close(), s.memory.close(ctx)) //nolint:contextcheck // cleanup must not depend on the context
	return errors.Join(errs...)
}

// read starts the calls of the rank, once the job is joined, until the rank closes the
// connection. No other goroutine starts calls, so a change of goroutines is saved for each.
func (s *server) read(ctx context.Context, joined <-chan struct{}) error {
	from := bufio.NewReader(awaiting{s.socket})
	if _, err := from.Peek(1); err != nil {
		return ended(err)
	}
	select {
	case <-joined:
	case <-ctx.Done():
		return nil
	}
	for ctx.Err() == nil {
		var f frame
		var head [frames.HeaderSize]byte
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return ended(err)
		}
		var err error
		if f.head, err = frames.ParseHeader(head[:]); err != nil {
			return err
		}
		call := f.head.Kind == frames.KindCall && f.head.Size == callSize
		if !call && (f.head.Kind != frames.KindCancel || f.head.Size != 0) {
			return fmt.Errorf("%w: kind %d with %d bytes", frames.ErrFrame, f.head.Kind, f.head.Size)
		}
		if _, err = io.ReadFull(from, f.body[:f.head.Size]); err != nil {
			return ended(err)
		}
		if err = s.take(ctx, &f); err != nil {
			return err
		}
	}
	return nil
}

// awaiting reads a socket.
type awaiting struct{ *nowait.Socket }

// Read implements io.Reader.
func (a awaiting) Read(p []byte) (int, error) { return a.Await(p) }

// ended returns the error of a connection that a rank has closed: none, however it has ended.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

// serve executes the calls of the rank until the context ends.
func (s *server) serve(ctx context.Context, joined chan<- struct{}) error {
	hello := frames.Hello{Calls: MaxCalls, Session: Protocol}
	if err := s.send(frames.AppendHello(frames.Begin(nil, frames.KindHello, 0, 0), hello), -1); err != nil {
		return err
	}
	close(joined)
	for {
		select {
		case do := <-s.sequence:
			do()
		case <-ctx.Done():
			return nil
		}
	}
}

// take starts the call of a frame, or ends one early.
//
// Errors: frames.ErrFrame for a number in use, after which the rank can't tell the answers apart.
func (s *server) take(ctx context.Context, f *frame) error {
	id := f.head.ID
	s.mu.Lock()
	end, active := s.active[id]
	full := len(s.active) >= MaxCalls
	s.mu.Unlock()
	switch {
	case f.head.Kind == frames.KindCancel:
		if active {
			end()
		}
		return nil
	case active:
		return fmt.Errorf("%w: call %d is in progress already", frames.ErrFrame, id)
	case full:
		return s.fail(id, errBusy)
	}
	c, err := ParseCall(f.body[:])
	if err != nil {
		return s.fail(id, err)
	}
	var cancel context.CancelFunc
	if c.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	s.mu.Lock()
	s.active[id] = cancel
	s.mu.Unlock()
	s.start(ctx, id, Verb(f.head.Verb), c)
	return nil
}

// answer describes the answer of a call that has succeeded.
type answer struct {
	value uint64
	// file is the descriptor to pass with the answer, or -1.
	file int
}

// finish ends a call. Its number may be used again when the answer has been sent.
func (s *server) finish(id uint64, a answer, err error) {
	s.mu.Lock()
	s.active[id]()
	delete(s.active, id)
	s.mu.Unlock()
	if err != nil {
		_ = s.fail(id, err) // a rank that has ended needs no answer
		return
	}
	line := adminapi.Line{Size: sizeOf(a.value)}
	_ = s.send(frames.AppendLine(frames.Begin(nil, frames.KindLast, 0, id), &line), a.file) // as above
}

func (s *server) fail(id uint64, err error) error {
	return s.send(frames.AppendFailure(frames.Begin(nil, frames.KindFailure, 0, id), failureOf(err)), -1)
}

// send sends a frame, with a descriptor if file is not negative.
func (s *server) send(b []byte, file int) error {
	if err := frames.Finish(b, 0); err != nil {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	var n int
	var err error
	if file >= 0 {
		n, _, err = s.conn.WriteMsgUnix(b, unix.UnixRights(file), nil)
	} else {
		n, err = s.socket.Write(b)
	}
	if err == nil && n < len(b) {
		_, err = s.conn.Write(b[n:])
	}
	return err
}
