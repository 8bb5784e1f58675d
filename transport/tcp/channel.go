package tcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/internal/pages"
	"github.com/hmcfs/hmcfs/transport/internal/queue"
	"github.com/hmcfs/hmcfs/transport/internal/spin"
	"github.com/hmcfs/hmcfs/transport/internal/turn"
	"github.com/hmcfs/hmcfs/transport/nowait"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Causes of the end of a channel. Transfers receive control.ErrDisconnected with
// them.
var (
	// ErrStalled reports a peer that makes no progress for longer than the
	// timeout.
	ErrStalled = errors.New("tcp: the peer makes no progress")
	// ErrProtocol reports a peer that answers a request that was not made, or
	// exceeds a limit.
	ErrProtocol = errors.New("tcp: the peer violates the protocol")
)

// Channel is one data connection. All methods may be called from any
// goroutine.
type Channel struct {
	conn *control.Conn
	// turn decides which goroutine reads in.
	turn *turn.Turn
	in   *reader
	opts Options
	// life ends when the channel starts to end, with the cause, while mu is held, and
	// with it device copies.
	life    context.Context //nolint:containedctx // it is the lifetime of the channel, from New to its end
	kill    context.CancelCauseFunc
	running sync.WaitGroup
	done    chan struct{}
	// wake wakes the writer; the stager has its own.
	wake  chan struct{}
	watch *time.Timer
	// moved counts every read and write, inside is true while a frame is read.
	moved  atomic.Uint64
	inside atomic.Bool
	stager stager
	lander lander
	// pages are the sockets for pages of files, nil if the connection has none.
	pages struct{ in, out *pages.Socket }

	mu sync.Mutex
	// +checklocks:mu
	try *nowait.Writer
	// out holds answers and staged frames that wait to be written.
	// +checklocks:mu
	out queue.Queue[frame]
	// jobs are our transfers from and to host memory.
	// +checklocks:mu
	jobs queue.Queue[job]
	// places holds the fragments in flight; free lists the unused places.
	// +checklocks:mu
	places []place
	// +checklocks:mu
	free []uint16
	// writing is true while the writer writes without the lock.
	// +checklocks:mu
	writing bool
	// small is the buffer in which a small frame is assembled.
	// +checklocks:mu
	small [wire.DataHeaderSize + maxSmall]byte
	// owed is the number of unanswered requests of the peer.
	// +checklocks:mu
	owed int
	// seen and idle belong to the watch.
	// +checklocks:mu
	seen uint64
	// +checklocks:mu
	idle int
}

// maxSmall is the largest put, in bytes, that the posting goroutine may write
// itself, after copying it into small.
const maxSmall = 8 << 10

// looks is the number of times that the watch checks within the timeout.
const looks = 4

// New starts a channel on a data connection, which the channel then owns.
func New(c *control.Conn, o Options) (*Channel, error) {
	o.EnsureDefaults()
	err := o.Validate()
	var try *nowait.Writer
	if err == nil {
		try, err = nowait.NewWriter(c.Conn)
	}
	var from *spin.Reader
	if err == nil {
		from, err = spin.New(c.Conn)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	ch := &Channel{
		conn: c, opts: o, try: try, done: make(chan struct{}), wake: make(chan struct{}, 1),
		places: make([]place, o.InFlight), free: make([]uint16, 0, o.InFlight),
	}
	ch.in = &reader{conn: c, from: from, moved: &ch.moved}
	ch.pages.in, ch.pages.out = pages.Receiver(c.Conn), pages.Sender(c.Conn)
	// Their errors are those of a connection that has ended.
	ch.turn = turn.New(func() { _ = c.SetReadDeadline(time.Unix(1, 0)) }, func() { _ = c.SetReadDeadline(time.Time{}) })
	for i := range ch.places {
		ch.free = append(ch.free, uint16(i))
	}
	ch.life, ch.kill = context.WithCancelCause(context.Background())
	ch.stager.init(ch)
	ch.lander.init(ch)
	// The watch is created under the lock, since it may run before the assignment
	// is complete; and first, because the end of the channel stops it.
	ch.mu.Lock()
	ch.watch = time.AfterFunc(o.Timeout/looks, ch.look)
	ch.mu.Unlock()
	ch.start(ch.write)
	ch.start(ch.read)
	go ch.bury()
	return ch, nil
}

// start runs one of the channel's goroutines, near the network card that the
// connection uses.
func (c *Channel) start(run func()) {
	c.running.Go(func() {
		defer c.opts.Engine.EnterNear(c.conn.LocalAddr())()
		run()
	})
}

// Post starts a transfer, or joins one. A channel that has ended completes it
// with an error.
func (c *Channel) Post(t *Transfer) {
	j, p := t.job()
	c.mu.Lock()
	if err := c.Err(); err != nil {
		c.mu.Unlock()
		j.abort(err)
		return
	}
	if p.Kind == wire.KindPut && p.Local.Device() != "" {
		c.stager.jobs.Push(j)
		c.stager.startLocked()
		c.mu.Unlock()
		return
	}
	if (p.Kind == wire.KindGet || p.Size <= maxSmall) && c.idleLocked() {
		c.postSmallLocked(j)
		return
	}
	c.jobs.Push(j)
	c.wakeLocked()
	c.mu.Unlock()
}

// idleLocked reports whether nothing waits to be written and a place is free.
//
// +checklocks:c.mu
func (c *Channel) idleLocked() bool {
	return !c.writing && c.out.Empty() && c.jobs.Empty() && len(c.free) > 0
}

// wakeLocked makes the writer check the queues, unless it will do so anyway.
//
// +checklocks:c.mu
func (c *Channel) wakeLocked() {
	if c.writing {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// postSmallLocked writes the first fragment itself, as far as the socket accepts
// it, leaves the rest to the writer, and unlocks.
//
// +checklocksrelease:c.mu
func (c *Channel) postSmallLocked(j job) {
	c.jobs.Push(j)
	f, id, ok := c.cutLocked(&c.jobs)
	if !ok {
		c.mu.Unlock()
		return
	}
	head := f.header(id)
	head.Encode(c.small[:])
	p := c.small[:wire.DataHeaderSize]
	if f.kind == wire.KindPut {
		p = append(p, f.local.Host(f.off, f.n)...)
	}
	// The bytes have been copied: the local memory is no longer needed.
	c.places[id.place()].written = true
	err := c.pushBytesLocked(p)
	if !c.jobs.Empty() {
		c.wakeLocked()
	}
	c.mu.Unlock()
	if err != nil {
		c.fail(err)
	}
}

// pushBytesLocked writes as much of a small frame as fits and queues the rest.
//
// +checklocks:c.mu
func (c *Channel) pushBytesLocked(p []byte) error {
	n, err := c.try.Try(p)
	if err != nil {
		return err
	}
	if n > 0 {
		c.moved.Add(1)
	}
	if n < len(p) {
		c.out.Push(frame{raw: append([]byte(nil), p[n:]...)})
		c.wakeLocked()
	}
	return nil
}

// answer sends the frame that answers a request of the peer: directly if the
// queue is empty and the frame is small.
func (c *Channel) answer(f frame) {
	c.mu.Lock()
	c.owed--
	if c.life.Err() != nil {
		c.mu.Unlock()
		f.release(c)
		return
	}
	if f.pipe == nil && len(f.payload) <= maxSmall && !c.writing && c.out.Empty() {
		f.head.Encode(c.small[:])
		err := c.pushBytesLocked(append(c.small[:wire.DataHeaderSize], f.payload...))
		c.mu.Unlock()
		f.release(c)
		if err != nil {
			c.fail(err)
		}
		return
	}
	c.out.Push(f)
	c.wakeLocked()
	c.mu.Unlock()
}

// owe records a request of the peer. It fails for a peer that has too many
// unanswered requests, or does not read its answers.
func (c *Channel) owe() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owed++; c.owed+c.out.Len() > 2*MaxInFlight {
		return fmt.Errorf("%d requests of %s are unanswered, or their answers unread: %w", c.owed, c.conn.Peer, ErrProtocol)
	}
	return nil
}
