package tcp

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/internal/queue"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// stager moves bytes D2H, or out of files, before they are written. Its queues
// are guarded by the channel's mu.
//
// Pages of a borrowed file are not staged but sent without copying, through a
// pipe, and memory that the device can map is sent from its map. A file that is
// not borrowed is read into slots: otherwise the socket's queue would refer to
// the file's own pages, and an owner that has revoked a key and reuses the pages
// would still send them.
type stager struct {
	c     *Channel
	wake  chan struct{}
	turns turns
	// jobs are our puts from device memory, gets the peer's requests for it.
	jobs    queue.Queue[job]
	gets    queue.Queue[stagedGet]
	started bool
}

// stagedGet is a GET of device memory.
type stagedGet struct {
	use region.Use
	off devices.Offset
	n   devices.Size
	id  wire.RequestID
}

func (s *stager) init(c *Channel) { s.c, s.wake, s.turns = c, make(chan struct{}, 1), newTurns() }

// nudge makes the stager check its queues.
func (s *stager) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// startLocked wakes the stager, or starts it.
//
// Preconditions: the channel's mu is held, and the channel has not ended: the
// reader or a poster runs.
func (s *stager) startLocked() {
	if !s.started {
		s.started = true
		s.c.start(s.run)
	}
	s.nudge()
}

func (s *stager) run() {
	for {
		select {
		case <-s.wake:
		case <-s.c.life.Done():
			return
		}
		for s.step() {
		}
	}
}

// step stages one piece; false means that there is nothing to do.
func (s *stager) step() bool {
	c := s.c
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return false
	}
	if !s.gets.Empty() {
		g := s.gets.Pop()
		c.mu.Unlock()
		s.stageGet(g)
		return true
	}
	f, id, ok := c.cutLocked(&s.jobs)
	c.mu.Unlock()
	if ok {
		s.stagePut(f, id)
	}
	return ok
}

// stage makes the payload of a frame from n bytes of a buffer, from off. The
// frame must be released whatever the result.
func (s *stager) stage(fr *frame, b *region.Buffer, off devices.Offset, n devices.Size) error {
	c := s.c
	if err := s.turns.take(c.life); err != nil {
		return err
	}
	fr.turn = true
	view, mapped, err := b.View(c.life, off, n, devices.ReadOnly)
	if err != nil {
		return err
	}
	if mapped {
		fr.payload, fr.view = view.Bytes, view.Release
		return nil
	}
	if f, at, lent := b.File(off); lent && c.pages.out != nil {
		if pipe, ok := c.opts.Pipes.Get(); ok {
			fr.pipe, err = pipe, unix.EINVAL
			if pipe.Fits(at, int(n)) {
				err = pipe.FromFile(f, at, int(n))
			}
			if !errors.Is(err, unix.EINVAL) {
				return err
			}
			// They are too many, or the file system does not support splicing its
			// pages.
			c.opts.Pipes.Put(pipe)
			fr.pipe = nil
		}
	}
	fr.slot = newSlot(c.opts.Engine, b, n)
	fr.payload = fr.slot.bytes[:n]
	return b.Load(c.life, transport.HostSpan(fr.payload), off)
}

func (s *stager) stageGet(g stagedGet) {
	fr := frame{head: dataHeader(g.id, g.n), use: g.use}
	if err := s.stage(&fr, g.use.Buffer, g.off, g.n); err != nil {
		fr.release(s.c)
		s.c.refuse(g.id, wire.StatusDevice)
		return
	}
	if fr.slot.bytes != nil {
		// The bytes have been copied.
		fr.use.Release()
		fr.use = region.Use{}
	}
	s.c.answer(fr)
}

func (s *stager) stagePut(f fragment, id requestID) {
	c := s.c
	fr := frame{head: f.header(id), put: true}
	if err := s.stage(&fr, f.local, f.off, f.n); err != nil {
		fr.release(c)
		c.gotten(id, err)
		return
	}
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		fr.release(c)
		return
	}
	c.out.Push(fr)
	c.wakeLocked()
	c.mu.Unlock()
}
