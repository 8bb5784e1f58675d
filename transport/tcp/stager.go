package tcp

import (
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// stager moves bytes D2H, or out of files, before they are written. Its queues
// are guarded by the channel's mu.
//
// A file is read into slots beside the writer. To send it by sendfile is
// slower: 64 MiB of tmpfs over loopback, 2.2 GB/s against 2.4 to 2.5 (medians,
// two runs), for 15 % less of the sender's processor. And what sendfile has
// queued is the file's own pages: an owner who has revoked a key, and reuses
// them, would still send them.
type stager struct {
	c     *Channel
	wake  chan struct{}
	slots slotSet
	// jobs are our puts from device memory, gets what the peer wants of it.
	jobs    queue[job]
	gets    queue[stagedGet]
	started bool
}

// stagedGet is a GET of device memory.
type stagedGet struct {
	use region.Use
	off devices.Offset
	n   devices.Size
	id  wire.RequestID
}

func (s *stager) init(c *Channel) { s.c, s.wake = c, make(chan struct{}, 1) }

// nudge makes the stager look at its queues.
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
		s.c.running.Go(s.run)
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

// step stages one piece; false is nothing to do.
func (s *stager) step() bool {
	c := s.c
	c.mu.Lock()
	if c.cause != nil {
		c.mu.Unlock()
		return false
	}
	if !s.gets.empty() {
		g := s.gets.pop()
		c.mu.Unlock()
		s.stageGet(g)
		return true
	}
	for !s.jobs.empty() && len(c.free) > 0 {
		j := s.jobs.pop()
		f, ok := j.next(devices.Size(c.conn.Chunk))
		if !ok {
			continue
		}
		if j.more() {
			s.jobs.push(j)
		}
		id := c.takePlaceLocked(f)
		c.mu.Unlock()
		s.stagePut(f, id)
		return true
	}
	c.mu.Unlock()
	return false
}

// stage fills a slot with n bytes of a buffer from off.
func (s *stager) stage(b *region.Buffer, off devices.Offset, n devices.Size) (*slot, error) {
	p, err := s.slots.get(s.c.life, s.c.opts.Engine, devices.Size(s.c.conn.Chunk))
	if err != nil {
		return nil, err
	}
	if err := b.Load(s.c.life, transport.HostSpan(p.Bytes()[:n]), off); err != nil {
		s.slots.giveBack(p)
		return nil, err
	}
	return p, nil
}

func (s *stager) stageGet(g stagedGet) {
	p, err := s.stage(g.use.Buffer, g.off, g.n)
	g.use.Release()
	if err != nil {
		s.c.refuse(g.id, wire.StatusDevice)
		return
	}
	s.c.answer(frame{head: dataHeader(g.id, g.n), payload: p.Bytes()[:g.n], slot: p})
}

func (s *stager) stagePut(f fragment, id requestID) {
	c := s.c
	p, err := s.stage(f.local, f.off, f.n)
	if err != nil {
		c.gotten(id, err)
		return
	}
	fr := frame{head: f.header(id), payload: p.Bytes()[:f.n], slot: p, put: true}
	c.mu.Lock()
	if c.cause != nil {
		c.mu.Unlock()
		fr.release(c)
		return
	}
	c.out.push(fr)
	c.wakeLocked()
	c.mu.Unlock()
}
