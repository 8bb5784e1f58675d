package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/transport/internal/spin"
	"github.com/hmcfs/hmcfs/transport/internal/trywrite"
	"github.com/hmcfs/hmcfs/transport/internal/turn"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The bounds of what waits on a link.
const (
	// maxUnsent is the bytes that wait to be sent, above which a sender waits.
	maxUnsent = 256 << 10
	// maxTags and maxMessages wait to be received.
	maxTags     = 4096
	maxMessages = 32
)

// goodbye bounds the wait of a link's end for what is unsent.
const goodbye = time.Second

// Link carries tags and messages on a control connection. All methods may be
// called from any goroutine; what one of them sends arrives in order.
type Link struct {
	conn *Conn
	// turn decides which goroutine reads the connection, through in.
	turn *turn.Turn
	in   *bufio.Reader
	// from is read by in; the goroutine that has the turn may make it spin.
	from *spin.Reader
	tags chan wire.Tag
	// messages are owned by whoever receives them.
	messages chan []byte
	packets  PacketHandler
	// received is closed when nothing is received any more.
	received chan struct{}
	// done is closed when the link has ended and all that came is in the
	// queues.
	done    chan struct{}
	wake    chan struct{}
	running sync.WaitGroup
	end     sync.Once
	// stop is closed when the link begins to end.
	stop chan struct{}

	mu sync.Mutex
	// try writes what fits without waiting.
	// +checklocks:mu
	try *trywrite.Writer
	// tag is the buffer in which the frame of a tag is made.
	// +checklocks:mu
	tag [wire.TagFrameSize]byte
	// packet and pieces are where that of a packet is made.
	// +checklocks:mu
	packet []byte
	// +checklocks:mu
	pieces [][]byte
	// unsent has what did not fit; the writer takes it away and says so on
	// space.
	// +checklocks:mu
	unsent []byte
	// +checklocks:mu
	writing bool
	// +checklocks:mu
	space chan struct{}
	// +checklocks:mu
	cause error
}

// NewLink starts a link on a control connection, which it owns then. Nil
// packets leaves them unread.
func NewLink(c *Conn, packets PacketHandler) (*Link, error) {
	try, err := trywrite.New(c.Conn)
	if err != nil {
		return nil, fmt.Errorf("link to %s: %w", c.Peer, errors.Join(err, c.Close()))
	}
	from, err := spin.New(c.Conn)
	if err != nil {
		return nil, fmt.Errorf("link to %s: %w", c.Peer, errors.Join(err, c.Close()))
	}
	l := &Link{
		conn: c, try: try, in: bufio.NewReaderSize(from, readAhead), from: from, packets: packets, received: make(chan struct{}),
		tags: make(chan wire.Tag, maxTags), messages: make(chan []byte, maxMessages),
		done: make(chan struct{}), stop: make(chan struct{}), wake: make(chan struct{}, 1), space: make(chan struct{}),
	}
	l.turn = turn.New(func() { l.deadline(time.Unix(1, 0)) }, func() { l.deadline(time.Time{}) })
	l.running.Go(l.write)
	l.running.Go(l.read)
	go func() {
		l.running.Wait()
		// Its error is that of a connection that has ended already.
		_ = l.conn.Close()
		close(l.done)
	}()
	return l, nil
}

// Done is closed when the link has ended, for whatever reason.
func (l *Link) Done() <-chan struct{} { return l.done }

// Stopping is closed when the link begins to end: nothing can be sent any
// more, and what has come can still be received.
func (l *Link) Stopping() <-chan struct{} { return l.stop }

// Received is closed when the link ends and nothing is received any more: what
// came is in the queues, and no packet is handed over.
func (l *Link) Received() <-chan struct{} { return l.received }

// Err is why the link has ended or ends: ErrDisconnected and the cause.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errLocked()
}

// +checklocks:l.mu
func (l *Link) errLocked() error {
	if l.cause == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", l.conn.Peer, ErrDisconnected, l.cause)
}

// Drain waits until all that a peer has sent that is gone was received, up to a
// second.
func (l *Link) Drain() {
	select {
	case <-l.received:
	case <-l.stop:
	case <-time.After(goodbye):
	}
}

// Close tells the peer, and ends the link. It waits up to a second for what
// is unsent.
func (l *Link) Close() {
	l.Stop()
	<-l.done
}

// Stop is Close that does not wait.
func (l *Link) Stop() {
	l.mu.Lock()
	if l.cause == nil {
		l.unsent = wire.Header{Kind: wire.KindBye}.Append(l.unsent)
	}
	l.mu.Unlock()
	l.fail(errClosedHere())
}

func errClosedHere() error { return errors.New("closed on this side") }

// fail begins the end: the first cause counts.
func (l *Link) fail(cause error) {
	l.end.Do(func() {
		l.mu.Lock()
		l.cause = cause
		l.mu.Unlock()
		// Who reads gives up now, and who writes after what is unsent. The
		// errors are those of a connection that has ended already.
		_ = l.conn.SetReadDeadline(time.Unix(1, 0))
		_ = l.conn.SetWriteDeadline(time.Now().Add(goodbye))
		close(l.stop)
	})
}

// deadline ends reads at a time, unless the end of the link has done that.
func (l *Link) deadline(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		_ = l.conn.SetReadDeadline(at)
	}
}

// SendTag sends a tag. It returns when the tag is on its way, which is before
// it has arrived.
//
// Errors: ErrDisconnected; the context's, when it ends before there is room,
// and then nothing was sent.
func (l *Link) SendTag(ctx context.Context, t wire.Tag) error {
	if err := l.room(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sendLocked(wire.AppendTag(l.tag[:0], t))
}

// SendMessage sends a copy of p, up to wire.MaxMessage bytes. Its errors are
// those of SendTag, and ErrTooLong.
func (l *Link) SendMessage(ctx context.Context, p []byte) error {
	if len(p) > wire.MaxMessage {
		return fmt.Errorf("message of %d bytes to %s, at most %d: %w", len(p), l.conn.Peer, wire.MaxMessage, ErrTooLong)
	}
	frame := make([]byte, 0, wire.HeaderSize+len(p))
	frame = wire.Header{Kind: wire.KindMessage, Length: uint32(len(p))}.Append(frame)
	if err := l.room(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sendLocked(append(frame, p...))
}

// room waits until less than maxUnsent bytes wait to be sent. Several senders
// that have waited may then exceed it by one frame each.
func (l *Link) room(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		l.mu.Lock()
		full, space := l.cause == nil && len(l.unsent) > maxUnsent, l.space
		l.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-space:
		case <-l.stop:
		case <-ctx.Done():
			return fmt.Errorf("send to %s, which does not receive: %w", l.conn.Peer, ctx.Err())
		}
	}
}

// sendLocked writes a frame, or leaves it to the writer where the socket is
// full.
//
// +checklocks:l.mu
func (l *Link) sendLocked(frame []byte) error {
	if l.cause != nil {
		return l.errLocked()
	}
	if !l.writing && len(l.unsent) == 0 {
		n, err := l.try.Try(frame)
		if err != nil {
			// The reader learns of it too, and ends the link.
			return fmt.Errorf("%s: %w: %w", l.conn.Peer, ErrDisconnected, err)
		}
		if frame = frame[n:]; len(frame) == 0 {
			return nil
		}
	}
	l.unsent = append(l.unsent, frame...)
	l.wakeLocked()
	return nil
}

// wakeLocked makes the writer look for what is unsent.
//
// +checklocks:l.mu
func (l *Link) wakeLocked() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write sends what did not fit, until the end; then what is left.
func (l *Link) write() {
	var spare []byte
	for {
		ending := false
		select {
		case <-l.wake:
		case <-l.stop:
			ending = true
		}
		for {
			out := l.takeUnsent(spare)
			if len(out) == 0 {
				break
			}
			if _, err := l.conn.Write(out); err != nil {
				l.fail(err)
				return
			}
			spare = out[:0]
		}
		if ending {
			return
		}
	}
}

// takeUnsent returns what waits to be sent, leaving spare in its place, and
// lets those who wait for space go on. With nothing to send, the senders may
// write by themselves.
func (l *Link) takeUnsent(spare []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = len(l.unsent) > 0
	if !l.writing {
		return nil
	}
	close(l.space)
	l.space = make(chan struct{})
	out := l.unsent
	l.unsent = spare
	return out
}
