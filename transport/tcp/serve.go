package tcp

import (
	"errors"
	"io"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/pages"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// read serves the peer until the end.
func (c *Channel) read() {
	r := c.in
	for {
		c.inside.Store(false)
		p, err := r.header()
		c.inside.Store(true)
		var h wire.DataHeader
		if err == nil {
			err = h.Decode(p, c.conn.Chunk)
		}
		if err == nil {
			err = c.dispatch(r, &h)
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("the peer closed the connection unexpectedly")
		}
		if err != nil {
			// It has the turn when it ends: no other goroutine reads then.
			c.fail(err)
			return
		}
		if c.turn.Wanted() {
			c.inside.Store(false)
			c.turn.Yield(c.life.Done())
		}
	}
}

func (c *Channel) dispatch(r *reader, h *wire.DataHeader) error {
	switch h.Kind {
	case wire.KindPut:
		return c.servePut(r, h)
	case wire.KindGet:
		return c.serveGet(h)
	case wire.KindAck:
		return c.answered(h)
	default:
		return c.receive(r, h)
	}
}

// servePut handles a PUT of the peer: the bytes are read into their place, or
// dropped if the key does not allow it.
func (c *Channel) servePut(r *reader, h *wire.DataHeader) error {
	if err := c.owe(); err != nil {
		return err
	}
	n := devices.Size(h.Length)
	use, status := c.opts.Keys.Use(h.Key, wire.Writable, h.Off, n)
	if status != wire.StatusOK {
		if err := r.discard(int(h.Length)); err != nil {
			return err
		}
		c.acknowledge(h.ID, status)
		return nil
	}
	off := devices.Offset(h.Off)
	if dst := use.Buffer.Host(off, n); dst != nil {
		err := r.payload(dst)
		use.Release()
		if err == nil {
			c.acknowledge(h.ID, wire.StatusOK)
		}
		return err
	}
	return c.lander.take(r, landing{buffer: use.Buffer, off: off, n: n, use: use, peer: h.ID})
}

func (c *Channel) acknowledge(id wire.RequestID, s wire.Status) {
	c.answer(frame{head: wire.DataHeader{Kind: wire.KindAck, Status: s, ID: id}})
}

// serveGet handles a GET of the peer.
func (c *Channel) serveGet(h *wire.DataHeader) error {
	if err := c.owe(); err != nil {
		return err
	}
	n := devices.Size(h.Length)
	use, status := c.opts.Keys.Use(h.Key, wire.Readable, h.Off, n)
	if status != wire.StatusOK {
		c.refuse(h.ID, status)
		return nil
	}
	off := devices.Offset(h.Off)
	if src := use.Buffer.Host(off, n); src != nil {
		c.answer(frame{head: dataHeader(h.ID, n), payload: src, use: use})
		return nil
	}
	c.mu.Lock()
	c.stager.gets.Push(stagedGet{use: use, off: off, n: n, id: h.ID})
	c.stager.startLocked()
	c.mu.Unlock()
	return nil
}

func (c *Channel) refuse(id wire.RequestID, s wire.Status) {
	c.answer(frame{head: wire.DataHeader{Kind: wire.KindData, Status: s, ID: id}})
}

func dataHeader(id wire.RequestID, n devices.Size) wire.DataHeader {
	return wire.DataHeader{Kind: wire.KindData, Length: uint32(n), ID: id}
}

// frame is a frame that waits to be written. It owns resources that are released
// afterwards.
type frame struct {
	head    wire.DataHeader
	payload []byte
	// raw is the rest of a partially written frame; head and payload are not used
	// then.
	raw []byte
	// use is held by an answer to a get; its Buffer is nil otherwise.
	use region.Use
	// slot is the slot in which the payload was staged, view releases the map
	// that contains it, and pipe holds the pages that are sent in its place.
	slot slot
	view func()
	pipe *pages.Pipe
	// turn means that it has one of the stager's turns.
	turn bool
	// put means that head.ID is the place of a put of ours.
	put bool
}

// release releases what the frame owns.
func (f *frame) release(c *Channel) {
	if f.view != nil {
		f.view()
	}
	if f.pipe != nil {
		c.opts.Pipes.Put(f.pipe)
	}
	if f.use.Buffer != nil {
		f.use.Release()
	}
	if f.slot.bytes != nil {
		f.slot.release()
	}
	if f.turn {
		c.stager.turns.giveBack()
	}
}
