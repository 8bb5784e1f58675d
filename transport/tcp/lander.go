package tcp

import (
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// lander moves bytes H2D after they were read.
type lander struct {
	c     *Channel
	slots slotSet
	start sync.Once
	queue chan landing
}

// landing is bytes on their way into device memory: of a put of the peer, or
// of a get of ours.
type landing struct {
	buffer *region.Buffer
	off    devices.Offset
	n      devices.Size
	slot   *slot
	// use and peer are the put's, id is the get's.
	use  region.Use
	peer wire.RequestID
	id   requestID
	get  bool
}

func (l *lander) init(c *Channel) {
	l.c = c
	l.queue = make(chan landing, slotsPerWay)
}

// take reads the bytes of a frame into a slot and leaves the rest to the
// lander. It is called by the reader only.
func (l *lander) take(r *reader, w landing) error {
	p, err := l.slots.get(l.c.life, l.c.opts.Engine, devices.Size(l.c.conn.Chunk))
	if err != nil {
		if derr := r.discard(int(w.n)); derr != nil {
			err = derr
		} else {
			l.landed(w, err)
			return nil
		}
		w.release()
		return err
	}
	if err := r.payload(p.Bytes()[:w.n]); err != nil {
		l.slots.giveBack(p)
		w.release()
		return err
	}
	w.slot = p
	l.start.Do(func() { l.c.running.Go(l.run) })
	// It has room for as many as there are slots.
	l.queue <- w
	return nil
}

// release gives up the peer's use of the memory.
func (w *landing) release() {
	if !w.get {
		w.use.Release()
	}
}

func (l *lander) run() {
	for {
		select {
		case w := <-l.queue:
			err := w.buffer.Store(l.c.life, w.off, transport.HostSpan(w.slot.Bytes()[:w.n]))
			l.slots.giveBack(w.slot)
			l.landed(w, err)
		case <-l.c.life.Done():
			l.clear()
			return
		}
	}
}

// clear gives back what is queued when the channel ends. The reader, which
// fills the queue, may be behind: bury comes after both.
func (l *lander) clear() {
	for {
		select {
		case w := <-l.queue:
			l.slots.giveBack(w.slot)
			w.release()
		default:
			return
		}
	}
}

// landed answers the peer, or ends our get.
func (l *lander) landed(w landing, err error) {
	w.release()
	switch {
	case w.get:
		l.c.gotten(w.id, err)
	case err != nil:
		l.c.acknowledge(w.peer, wire.StatusDevice)
	default:
		l.c.acknowledge(w.peer, wire.StatusOK)
	}
}
