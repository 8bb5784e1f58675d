package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/transport/nowait"
)

const (
	// maxCalls bounds the calls in progress of a session of root or the owner, and
	// maxForeignCalls those of another user, who may have maxSessions sessions: each call has
	// goroutines.
	maxCalls        = 1 << 16
	maxForeignCalls = 128
	// maxIdle bounds the calls of a session that are kept to be used again, and mostIdle the keys,
	// lists and blobs of all of them.
	maxIdle  = 8
	mostIdle = 2048
	// frameBuffer is the size, in bytes, of the buffer that small frames are received in.
	frameBuffer = 16 << 10
	// keyPatience is the time for each key of a call by which the next one is waited for longer without sleeping, and mostPatience
	// bounds it: the client looks at the results of all keys, and names the next ones.
	keyPatience  = 500 * time.Nanosecond
	mostPatience = 200 * time.Microsecond
)

// framed is a session whose calls are frames on the connection that holds it.
type framed struct {
	server *Server
	conn   *conn
	one    *session
	verbs  []numberedVerb // by their number less one
	most   int            // calls in progress
	files  *openFiles     // nil if the server has no files
	// channel passes descriptors.
	channel *frames.Channel
	// replying is held from sending the descriptors of an answer until its frame is sent: in this order the client receives them.
	replying sync.Mutex
	// life is the context of requests.
	life context.Context //nolint:containedctx // it ends with the session

	// The following fields belong to the reading goroutine.
	poller *frames.Poller
	in     *bufio.Reader
	names  frames.Names
	// passed is closed once the descriptors of the last request with some have been received: they are there in the order of the frames.
	passed chan struct{}
	// turn is odd while the reading goroutine executes a call itself; it changes with every
	// such call. Whoever makes it even reads from then on.
	turn atomic.Uint64
	// read is the function of a reading goroutine.
	read func()
	// over receives the error of the last reading goroutine.
	over chan error

	// sending is held while a frame is written.
	sending sync.Mutex
	// out writes what the client has room for.
	// +checklocks:sending
	out *nowait.Writer
	// deadline is the time at which writes fail.
	// +checklocks:sending
	deadline time.Time
	// broken is the error after which nothing more is sent.
	// +checklocks:sending
	broken error

	mu sync.Mutex
	// calls are the contexts of the calls in progress, by their number.
	// +checklocks:mu
	calls map[uint64]callLife
	// watches have a buffer of one, which is full when the next events may be sent, by the numbers of their requests.
	// +checklocks:mu
	watches map[uint64]chan struct{}
	// lives are contexts of calls that have ended, at most maxIdle, for later ones.
	// +checklocks:mu
	lives []callLife
	// active counts the calls in progress, and those whose last frame has not been sent.
	// +checklocks:mu
	active int
	// idle are calls whose memory is used again, at most maxIdle.
	// +checklocks:mu
	idle []*framedCall
	// spare is the size of all of them, at most mostIdle.
	// +checklocks:mu
	spare int
}

// attendFrames serves the frames of a session, with a channel and the client's end of that, which it closes once the client has it. It
// returns when the session must end.
func (s *Server) attendFrames(ctx context.Context, c *conn, one *session, channel *frames.Channel, theirs *os.File) error {
	out, err := nowait.NewWriter(c.UnixConn)
	if err != nil {
		return err
	}
	f := &framed{
		server: s, conn: c, out: out, one: one, channel: channel, verbs: s.numbered, most: maxForeignCalls,
		calls: map[uint64]callLife{}, watches: map[uint64]chan struct{}{}, over: make(chan error, 1),
	}
	poller, err := frames.NewPoller(c.UnixConn, s.pollers)
	if err != nil {
		return err
	}
	f.poller, f.in = poller, bufio.NewReaderSize(poller, frameBuffer)
	if c.trusted {
		f.most = maxCalls
	}
	switching := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + frames.Protocol + "\r\n"
	if one.lasting {
		switching += fmt.Sprintf("%s: %d\r\n", adminapi.ContinuesHeader, int(s.opts.Continues.Seconds()))
	}
	switching += "\r\n"
	hello := frames.Begin([]byte(switching), frames.KindHello, 0, 0)
	hello = frames.AppendHello(hello, frames.Hello{Session: one.id, Calls: uint32(f.most)})
	if err := frames.Finish(hello, len(switching)); err != nil {
		return err
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	ctx, abandon := context.WithCancel(ctx)
	s.sessions.track(c, one, abandon)
	if s.opts.Files != nil {
		f.files = s.openFiles(ctx, c, one)
		one.files = f.files
	}
	f.life, one.stop = context.WithCancel(ctx)
	if err := errors.Join(f.greet(hello, theirs), theirs.Close()); err != nil {
		return err
	}
	f.read = func() { f.receive(ctx) }
	s.turns.add(f)
	defer s.turns.remove(f)
	return one.read(c, func() error {
		go f.read()
		return <-f.over
	})
}

// greet sends the greeting with the client's end of the channel.
func (f *framed) greet(hello []byte, theirs *os.File) error {
	rights, err := frames.Rights([]*os.File{theirs})
	if err == nil {
		err = f.conn.SetWriteDeadline(time.Now().Add(f.server.opts.Handshake))
	}
	if err == nil {
		_, _, err = f.conn.WriteMsgUnix(hello, rights, nil) // a new connection has room for it
	}
	return err
}

// contain ends the session after a panic: what its calls have done is unknown. It must be deferred.
func (f *framed) contain() {
	if fault := recover(); fault != nil {
		f.panicked(fault)
	}
}

func (f *framed) panicked(fault any) {
	f.server.opts.Logger.Error("a session failed", zap.Any("panic", fault), zap.ByteString("stack", debug.Stack()))
	_ = f.conn.Close()
}

// receive serves frames until the client sends no more, or another goroutine reads.
func (f *framed) receive(ctx context.Context) {
	var err error
	defer func() {
		if fault := recover(); fault != nil {
			f.panicked(fault)
			f.over <- nil
		}
	}()
	for more := true; more; {
		if more, err = f.frame(ctx); errors.Is(err, errHandedOn) {
			return
		}
	}
	f.over <- err
}

// errHandedOn reports that another goroutine reads the frames of the session.
var errHandedOn = errors.New("another goroutine reads")

// frame serves one frame. more is false at the end of the session.
func (f *framed) frame(ctx context.Context) (more bool, err error) {
	head, err := f.in.Peek(frames.HeaderSize)
	if len(head) == 0 && (errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || ctx.Err() != nil) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("receive a frame: %w", err)
	}
	h, err := frames.ParseHeader(head)
	if err == nil {
		_, err = f.in.Discard(frames.HeaderSize)
	}
	switch {
	case err != nil:
	case h.Kind == frames.KindCall:
		err = f.call(ctx, h)
	case h.Kind == frames.KindFile:
		err = f.fileCall(h) //nolint:contextcheck // calls on files end with the session
	case h.Kind == frames.KindRequest:
		err = f.request(h) //nolint:contextcheck // requests end with the session
	case h.Kind == frames.KindMore && h.Size == 0:
		f.more(h.ID)
	case h.Kind == frames.KindCancel && h.Size == 0:
		f.cancel(h.ID)
	default:
		err = fmt.Errorf("%w: kind %d with %d bytes, from a client", frames.ErrFrame, h.Kind, h.Size)
	}
	return err == nil, err
}

// call starts a call. Its error ends the session.
func (f *framed) call(ctx context.Context, h frames.Header) error {
	c := f.newCall(h.ID)
	fault, err := f.body(h, c)
	if err != nil {
		return err
	}
	switch i := int(h.Verb) - 1; {
	case fault != nil:
	case i < 0 || i >= len(f.verbs):
		fault = fmt.Errorf("%w: unknown verb %d", hetero.ErrInvalid, h.Verb)
	default:
		c.verb = f.verbs[i]
		ctx, fault = f.admit(ctx, h.ID)
	}
	if fault != nil {
		f.one.user.memory.Release(c.taken)
		return c.out.refuse(fault)
	}
	if h.Again || f.one.lasting && c.verb.handsOver {
		ctx = objects.WithCall(ctx, h.ID, h.Again)
	}
	f.one.calls.Add(1)
	if f.in.Buffered() > 0 || c.verb.waits || c.q.Async || c.q.Timeout > 0 {
		go c.run(ctx)
		return nil
	}
	f.poller.Expect(min(time.Duration(len(c.q.Keys))*keyPatience, mostPatience))
	return f.take(ctx, c)
}

// take executes a call in the reading goroutine, which is faster than in another one. If it
// takes long, another goroutine reads the next frames meanwhile.
func (f *framed) take(ctx context.Context, c interface{ run(ctx context.Context) }) error {
	now := f.turn.Add(1)
	f.server.turns.watch()
	c.run(ctx)
	if !f.turn.CompareAndSwap(now, now+1) {
		return errHandedOn
	}
	return nil
}

// body receives the body of a call and decodes it. fault is a reason to refuse the call, err
// one to end the session.
func (f *framed) body(h frames.Header, c *framedCall) (fault, err error) {
	n := int(h.Size)
	// Decoding needs up to twice the memory of a body, beside the body.
	taken := 3 * int64(n)
	if taken > f.one.user.most {
		fault = fmt.Errorf("%w: a call of %d bytes, at most %d for this user", hetero.ErrInvalid, n, f.one.user.most/3)
	} else {
		fault = f.one.user.reserve(taken)
	}
	if fault != nil {
		f.server.opts.Refusals.add(boundCallBytes)
		if _, err = f.in.Discard(n); err != nil {
			return nil, fmt.Errorf("receive a call: %w", err)
		}
		return fault, nil
	}
	c.taken = taken
	body, err := f.bytes(n)
	if err == nil {
		fault = frames.ParseCall(body, &c.q, &f.names)
		if n <= frameBuffer {
			_, err = f.in.Discard(n)
		}
	}
	if err != nil {
		f.one.user.memory.Release(c.taken)
		return nil, fmt.Errorf("receive a call: %w", err)
	}
	if fault != nil {
		return fmt.Errorf("%w: %w", hetero.ErrInvalid, fault), nil
	}
	if keep := weight(&c.q); keep < c.taken {
		f.one.user.memory.Release(c.taken - keep)
		c.taken = keep
	}
	return nil, nil
}

// bytes receives the n bytes of a body. A body of at most frameBuffer bytes stays in the buffer,
// and the caller discards it.
func (f *framed) bytes(n int) ([]byte, error) {
	if n <= f.in.Buffered() {
		return f.in.Peek(n)
	}
	if err := f.conn.SetReadDeadline(time.Now().Add(bodyLimit)); err != nil {
		return nil, err
	}
	defer func() { _ = f.conn.SetReadDeadline(time.Time{}) }() // a closed connection fails the next read
	if n <= frameBuffer {
		return f.in.Peek(n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(f.in, body)
	return body, err
}

// admit counts a call, and returns its context, which cancel ends.
func (f *framed) admit(ctx context.Context, id uint64) (context.Context, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, twice := f.calls[id]; twice {
		return nil, fmt.Errorf("%w: a call with the number %d is in progress", hetero.ErrInvalid, id)
	}
	if f.active >= f.most {
		f.server.opts.Refusals.add(boundCalls)
		return nil, fmt.Errorf("%w: %d calls of this session are in progress", hetero.ErrBusy, f.most)
	}
	life := f.lifeLocked(ctx)
	f.calls[id] = life
	f.active++
	return life.ctx, nil
}

// lifeLocked returns a context derived from another one.
//
// +checklocks:f.mu
func (f *framed) lifeLocked(of context.Context) callLife {
	for i, life := range f.lives {
		if life.of == of {
			f.lives = slices.Delete(f.lives, i, i+1)
			return life
		}
	}
	ctx, cancel := context.WithCancel(of)
	return callLife{ctx: ctx, of: of, cancel: cancel}
}

// cancel ends a call early, if it is in progress.
func (f *framed) cancel(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if life, ok := f.calls[id]; ok {
		life.cancel()
	}
}

// send writes frames. After a failure the session ends, since a part of a frame may have been sent.
func (f *framed) send(b []byte) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	if f.broken != nil {
		return f.broken
	}
	// The deadline is renewed before it has used up half of its time.
	if now := time.Now(); f.deadline.Sub(now) < writeLimit/2 {
		f.deadline = now.Add(writeLimit)
		if f.broken = f.conn.SetWriteDeadline(f.deadline); f.broken != nil {
			return f.broken
		}
	}
	n, err := f.out.Try(b)
	if f.broken = err; err == nil && n < len(b) {
		_, f.broken = f.conn.Write(b[n:])
	}
	if f.broken != nil {
		_ = f.conn.Close() // the client has not read for too long, or is gone
	}
	return f.broken
}

// sendFrameEnded sends the last frame of a session, whose calls have ended.
func (s *Server) sendFrameEnded(c *conn) error {
	if err := c.SetWriteDeadline(time.Now().Add(s.opts.Handshake)); err != nil {
		return err
	}
	_, err := c.Write(frames.Begin(nil, frames.KindEnded, 0, 0))
	return err
}
