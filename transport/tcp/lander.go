package tcp

import (
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/internal/pages"
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

// landing is a piece of data bound for device memory or a file: from a put of the
// peer, or from a get of ours. A frame may be split into several, one after
// another.
type landing struct {
	buffer *region.Buffer
	off    devices.Offset
	n      devices.Size
	// slot or pipe holds the bytes, and with them one of the lander's turns. The
	// last landing of a frame may have neither: if the connection has failed
	// before.
	slot slot
	pipe *pages.Pipe
	last bool
	// use and peer belong to a put, id to a get.
	use  region.Use
	peer wire.RequestID
	id   requestID
	get  bool
}

func (l *lander) init(c *Channel) {
	l.c, l.turns = c, newTurns()
	// It has room for one landing per turn, and one without.
	l.queue = make(chan landing, slotsPerWay+1)
}

// take reads the bytes of a frame to their destination: directly into a map of
// the device's memory, and otherwise into pipes for a file, or a slot, which the
// lander empties. Only the reader calls it.
func (l *lander) take(r *reader, w landing) error {
	view, mapped, failure := w.buffer.View(l.c.life, w.off, w.n, devices.ReadWrite)
	switch {
	case failure != nil:
		return l.ended(w, failure, r.discard(int(w.n)))
	case mapped:
		err := r.payload(view.Bytes)
		view.Release()
		return l.ended(w, nil, err)
	}
	l.start.Do(func() { l.c.start(l.run) })
	f, _, _ := w.buffer.File(w.off)
	err := l.takeParts(r, &w, f != nil && l.c.pages.in != nil)
	if err != nil {
		// Queued parts of the frame still use the memory.
		w.slot, w.pipe, w.last = slot{}, nil, true
		l.queue <- w
	}
	return err
}

// takeParts queues a frame, in as many parts as it arrives in.
func (l *lander) takeParts(r *reader, w *landing, piped bool) error {
	for left := w.n; left > 0; {
		if err := l.turns.take(l.c.life); err != nil {
			return err
		}
		var err error
		w.n, w.slot, w.pipe = left, slot{}, nil
		if pipe, ok := l.pipe(piped); ok {
			w.pipe = pipe
			w.n, err = r.toPipe(l.c.pages.in, pipe, left)
		} else {
			w.slot = newSlot(l.c.opts.Engine, w.buffer, left)
			err = r.payload(w.slot.bytes[:left])
		}
		if err != nil {
			l.emptied(w)
			return err
		}
		left -= w.n
		w.last = left == 0
		l.queue <- *w
		w.off += devices.Offset(w.n)
	}
	return nil
}

func (l *lander) pipe(wanted bool) (*pages.Pipe, bool) {
	if !wanted {
		return nil, false
	}
	return l.c.opts.Pipes.Get()
}

// emptied releases the slot or pipe that held the bytes.
func (l *lander) emptied(w *landing) {
	switch {
	case w.pipe != nil:
		l.c.opts.Pipes.Put(w.pipe)
	case w.slot.bytes != nil:
		w.slot.release()
	default:
		return
	}
	l.turns.giveBack()
}

// ended answers a frame that was read without the lander, unless the connection
// has failed.
func (l *lander) ended(w landing, failure, err error) error {
	if err != nil {
		w.release()
		return err
	}
	l.landed(w, failure)
	return nil
}

// release ends the peer's use of the memory.
func (w *landing) release() {
	if !w.get {
		w.use.Release()
	}
}

func (l *lander) run() {
	// failure is the error of a part of the current frame.
	var failure error
	for {
		select {
		case w := <-l.queue:
			// The last part of a frame that the connection interrupted has no
			// bytes.
			complete := w.pipe != nil || w.slot.bytes != nil
			if failure == nil && complete {
				failure = l.store(&w)
			}
			l.emptied(&w)
			switch {
			case !w.last:
				continue
			case complete:
				l.landed(w, failure)
			default:
				w.release()
			}
			failure = nil
		case <-l.c.life.Done():
			l.clear()
			return
		}
	}
}

// store writes the bytes to their place, unless they are no longer wanted.
func (l *lander) store(w *landing) error {
	if w.get && !l.c.wanted(w.id) {
		return errPartFailed
	}
	if w.pipe != nil {
		f, at, _ := w.buffer.File(w.off)
		return w.pipe.ToFile(f, at)
	}
	return w.buffer.Store(l.c.life, w.off, transport.HostSpan(w.slot.bytes[:w.n]))
}

// clear releases queued landings when the channel ends. The reader, which fills
// the queue, may still be running: bury runs after both.
func (l *lander) clear() {
	for {
		select {
		case w := <-l.queue:
			l.emptied(&w)
			if w.last {
				w.release()
			}
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
