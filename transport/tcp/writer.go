package tcp

import (
	"net"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// maxBatch is the maximum number of frames of one writev.
const maxBatch = 16

// batch holds frames that are written together.
type batch struct {
	frames [maxBatch]frame
	n      int
	bytes  devices.Size
	heads  [maxBatch][wire.DataHeaderSize]byte
	pieces [2 * maxBatch][]byte
	// vector is consumed by WriteTo: it is a field to avoid an allocation.
	vector net.Buffers
}

func (b *batch) add(f frame) {
	b.frames[b.n] = f
	b.n++
	b.bytes += devices.Size(wire.DataHeaderSize + len(f.payload) + len(f.raw))
	if f.pipe != nil {
		b.bytes += devices.Size(f.head.Length)
	}
}

func (b *batch) full(chunk devices.Size) bool { return b.n == maxBatch || b.bytes >= chunk }

// writeTo writes all frames.
func (b *batch) writeTo(c *Channel) error {
	pieces := b.pieces[:0]
	defer clear(b.pieces[:])
	for i := range b.n {
		f := &b.frames[i]
		if f.raw != nil {
			pieces = append(pieces, f.raw)
			continue
		}
		f.head.Encode(b.heads[i][:])
		if f.pipe != nil {
			if err := b.flush(c, pieces); err != nil {
				return err
			}
			pieces = b.pieces[:0]
			if err := c.pages.out.Send(b.heads[i][:], f.pipe, c.wrote); err != nil {
				return err
			}
			continue
		}
		pieces = append(pieces, b.heads[i][:])
		if len(f.payload) > 0 {
			pieces = append(pieces, f.payload)
		}
	}
	return b.flush(c, pieces)
}

// partsWriter is a connection that is not a socket and accepts many parts at
// once.
type partsWriter interface {
	WriteParts(parts [][]byte) (int64, error)
}

// flush writes pieces from the memory of this process.
func (b *batch) flush(c *Channel, pieces [][]byte) error {
	if len(pieces) == 0 {
		return nil
	}
	var err error
	if w, ok := c.conn.Conn.(partsWriter); ok {
		_, err = w.WriteParts(pieces)
	} else {
		b.vector = pieces
		_, err = b.vector.WriteTo(c.conn.Conn)
	}
	c.wrote()
	return err
}

// wrote records that something has been written.
func (c *Channel) wrote() { c.moved.Add(1) }

// write writes what is queued, until the end.
func (c *Channel) write() {
	b := &batch{}
	for {
		select {
		case <-c.wake:
		case <-c.life.Done():
			return
		}
		for c.gather(b) {
			err := b.writeTo(c)
			c.written(b)
			if err != nil {
				c.fail(err)
				return
			}
		}
	}
}

// gather collects the next frames to write: answers first, since the peer waits
// for them, then fragments of our transfers. False means that there is nothing to
// do.
func (c *Channel) gather(b *batch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		c.writing = false
		return false
	}
	chunk := devices.Size(c.conn.Chunk)
	for !c.out.Empty() && !b.full(chunk) {
		b.add(c.out.Pop())
	}
	for !b.full(chunk) {
		f, id, ok := c.cutLocked(&c.jobs)
		if !ok {
			break
		}
		fr := frame{head: f.header(id)}
		if f.kind == wire.KindPut {
			fr.payload, fr.put = f.local.Host(f.off, f.n), true
		} else {
			c.places[id.place()].written = true
		}
		b.add(fr)
	}
	c.writing = b.n > 0
	return c.writing
}

// written releases what the frames own, and ends the puts that were answered
// already.
func (c *Channel) written(b *batch) {
	for i := range b.n {
		f := &b.frames[i]
		f.release(c)
		if f.put {
			c.writtenPut(requestID(f.head.ID))
		}
		*f = frame{}
	}
	b.n, b.bytes = 0, 0
}

func (c *Channel) writtenPut(id requestID) {
	c.mu.Lock()
	p := &c.places[id.place()]
	p.written = true
	c.leaveLocked(p, id)
}
