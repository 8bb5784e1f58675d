package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/transport/internal/spin"
	"github.com/hmcfs/hmcfs/transport/internal/turn"
	"github.com/hmcfs/hmcfs/transport/nowait"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The bounds of a link's queues.
const (
	// maxUnsent is the number of unsent bytes above which a sender waits.
	maxUnsent = 256 << 10
	// maxTags and maxMessages bound the queues of received tags and messages.
	maxTags     = 4096
	maxMessages = 32
)

// goodbye bounds the time that a link's end waits for unsent bytes.
const goodbye = time.Second

// Link carries tags and messages on a control connection. All methods may be
// called from any goroutine; what one goroutine sends arrives in order.
type Link struct {
	conn *Conn
	// turn decides which goroutine reads the connection, through in.
	turn *turn.Turn
	in   *bufio.Reader
	// from is read by in; the goroutine that has the turn may make it spin.
	from *spin.Reader
	tags chan wire.Tag
	// messages are owned by their receivers.
	messages chan []byte
	packets  PacketHandler
	// received is closed when nothing is received any more.
	received chan struct{}
	// done is closed when the link has ended and everything that arrived is in
	// the queues.
	done    chan struct{}
	wake    chan struct{}
	running sync.WaitGroup
	end     sync.Once
	// stop is closed when the link starts to end.
	stop chan struct{}

	mu sync.Mutex
	// try writes what fits without waiting.
	// +checklocks:mu
	try *nowait.Writer
	// tag is the buffer for the frame of a tag.
	// +checklocks:mu
	tag [wire.TagFrameSize]byte
	// packet and pieces are the buffers for the frame of a packet.
	// +checklocks:mu
	packet []byte
	// +checklocks:mu
	pieces [][]byte
	// unsent holds the bytes that did not fit; the writer takes them and closes
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

// NewLink starts a link on a control connection, which the link then owns. If
// packets is nil, packets are dropped.
func NewLink(c *Conn, packets PacketHandler) (*Link, error) {
	try, err := nowait.NewWriter(c.Conn)
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

// Stopping is closed when the link starts to end: nothing can be sent any more,
// and what has arrived can still be received.
func (l *Link) Stopping() <-chan struct{} { return l.stop }

// Received is closed when the link ends and nothing is received any more: what
// arrived is in the queues, and no further packet is delivered.
func (l *Link) Received() <-chan struct{} { return l.received }

// Err returns the reason why the link has ended or is ending: ErrDisconnected and
// the cause.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errLocked()
}

// +checklocks:l.mu
func (l *Link) errLocked() error {
	return Disconnected(l.conn.Peer, l.cause)
}

// Drain waits until everything that a peer sent before it ended has been
// received, for at most a second.
func (l *Link) Drain() {
	select {
	case <-l.received:
	case <-l.stop:
	case <-time.After(goodbye):
	}
}

// Close notifies the peer, and ends the link. It waits for at most a second for
// unsent bytes.
func (l *Link) Close() {
	l.Stop()
	<-l.done
}

// Stop is Close without waiting.
func (l *Link) Stop() {
	l.mu.Lock()
	if l.cause == nil {
		l.unsent = wire.Header{Kind: wire.KindBye}.Append(l.unsent)
	}
	l.mu.Unlock()
	l.fail(errors.New("closed on this side"))
}

// fail starts the end: the first cause is kept.
func (l *Link) fail(cause error) {
	l.end.Do(func() {
		l.mu.Lock()
		l.cause = cause
		l.mu.Unlock()
		// The reader gives up now, and the writer after the unsent bytes. The
		// errors are those of a connection that has ended already.
		_ = l.conn.SetReadDeadline(time.Unix(1, 0))
		_ = l.conn.SetWriteDeadline(time.Now().Add(goodbye))
		close(l.stop)
	})
}

// deadline sets the time at which reads end, unless the link is ending.
func (l *Link) deadline(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		_ = l.conn.SetReadDeadline(at)
	}
}

// SendTag sends a tag. It returns when the tag is on its way, before it has
// arrived.
//
// Errors: ErrDisconnected; the context's, when it ends before there is room, in
// which case nothing was sent.
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
		return fmt.Errorf("message of %d bytes to %s is longer than %d: %w", len(p), l.conn.Peer, wire.MaxMessage, ErrTooLong)
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

// room waits until no more than maxUnsent bytes wait to be sent. Several senders
// that have waited may then exceed the bound by one frame each.
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
			return fmt.Errorf("%s does not receive: %w", l.conn.Peer, ctx.Err())
		}
	}
}

// sendLocked writes a frame, or leaves it to the writer if the socket is full.
//
// +checklocks:l.mu
func (l *Link) sendLocked(frame []byte) error {
	if l.cause != nil {
		return l.errLocked()
	}
	if !l.writing && len(l.unsent) == 0 {
		n, err := l.try.Try(frame)
		if err != nil {
			// The reader sees the error too, and ends the link.
			return Disconnected(l.conn.Peer, err)
		}
		if frame = frame[n:]; len(frame) == 0 {
			return nil
		}
	}
	l.unsent = append(l.unsent, frame...)
	l.wakeLocked()
	return nil
}

// wakeLocked makes the writer look for unsent bytes.
//
// +checklocks:l.mu
func (l *Link) wakeLocked() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write sends the bytes that did not fit, until the end; then the rest.
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

// takeUnsent returns the bytes that wait to be sent, leaving spare in their
// place, and wakes those that wait for space. With nothing to send, senders may
// write directly.
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
