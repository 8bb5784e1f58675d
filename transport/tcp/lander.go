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
	turns turns
	start sync.Once
	queue chan landing
}

// landing is bytes on their way into device memory: of a put of the peer, or
// of a get of ours.
type landing struct {
	buffer *region.Buffer
	off    devices.Offset
	n      devices.Size
	slot   slot
	// use and peer are the put's, id is the get's.
	use  region.Use
	peer wire.RequestID
	id   requestID
	get  bool
}

func (l *lander) init(c *Channel) {
	l.c, l.turns = c, newTurns()
	l.queue = make(chan landing, slotsPerWay)
}

// take reads the bytes of a frame to where they belong: into a map of the
// device's memory or into a file from here, and else into a slot, which the
// lander empties. It is called by the reader only.
func (l *lander) take(r *reader, w landing) error {
	view, mapped, failure := w.buffer.View(l.c.life, w.off, w.n, devices.ReadWrite)
	f, at, _ := w.buffer.File(w.off)
	switch {
	case failure != nil:
		return l.ended(w, failure, r.discard(int(w.n)))
	case mapped:
		err := r.payload(view.Bytes)
		view.Release()
		return l.ended(w, nil, err)
	case f != nil && l.c.pages.in != nil:
		if pipe, ok := l.c.opts.Pipes.Get(); ok {
			failure, err := r.toFile(l.c.pages.in, pipe, f, at, int(w.n))
			l.c.opts.Pipes.Put(pipe)
			return l.ended(w, failure, err)
		}
	}
	if err := l.turns.take(l.c.life); err != nil {
		w.release()
		return err
	}
	w.slot = newSlot(l.c.opts.Engine, w.buffer, w.n)
	if err := r.payload(w.slot.bytes[:w.n]); err != nil {
		l.emptied(&w)
		w.release()
		return err
	}
	l.start.Do(func() { l.c.running.Go(l.run) })
	// It has room for as many as there are slots.
	l.queue <- w
	return nil
}

// emptied gives the slot back.
func (l *lander) emptied(w *landing) {
	w.slot.release()
	l.turns.giveBack()
}

// ended answers what was read without the lander, unless the connection has
// failed.
func (l *lander) ended(w landing, failure, err error) error {
	if err != nil {
		w.release()
		return err
	}
	l.landed(w, failure)
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
			err := errPartFailed
			if !w.get || l.c.wanted(w.id) {
				err = w.buffer.Store(l.c.life, w.off, transport.HostSpan(w.slot.bytes[:w.n]))
			}
			l.emptied(&w)
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
			l.emptied(&w)
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
