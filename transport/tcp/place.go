package tcp

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/queue"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// place is one fragment in flight:
//
//	free ──> live ──> written and answered, in any order ──> free
//
// An answer that arrives before the fragment is fully written (the peer can't
// have read it) must not make us release memory that the writer still reads.
type place struct {
	frag              fragment
	round             uint64
	live              bool
	written, answered bool
	// err is the result.
	err error
}

// placeBits is the number of low bits of a request's id that select the place; the
// others count the rounds of the place.
const placeBits = 16

type requestID wire.RequestID

func (id requestID) place() int { return int(id & (1<<placeBits - 1)) }

// header returns the header of the fragment's frame.
func (f *fragment) header(id requestID) wire.DataHeader {
	return wire.DataHeader{Kind: f.kind, Length: uint32(f.n), ID: wire.RequestID(id), Key: f.key, Off: f.at}
}

// takePlaceLocked assigns a free place to a fragment.
//
// Preconditions: a place is free.
//
// +checklocks:c.mu
func (c *Channel) takePlaceLocked(f fragment) requestID {
	i := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	p := &c.places[i]
	*p = place{frag: f, round: p.round + 1, live: true}
	return requestID(p.round<<placeBits | uint64(i))
}

// cutLocked cuts the next fragment of some jobs, and assigns a place to it; ok is
// false if there is none, or no place is free. The jobs take turns, so that a small
// one does not wait for all of a large one.
//
// +checklocks:c.mu
func (c *Channel) cutLocked(jobs *queue.Queue[job]) (f fragment, id requestID, ok bool) {
	for !ok && !jobs.Empty() && len(c.free) > 0 {
		j := jobs.Pop()
		var more bool
		if f, more, ok = j.next(devices.Size(c.conn.Chunk)); ok {
			id = c.takePlaceLocked(f)
		}
		if more {
			jobs.Push(j)
		}
	}
	return f, id, ok
}

// findLocked returns the place that an answer belongs to.
//
// +checklocks:c.mu
func (c *Channel) findLocked(h *wire.DataHeader, kind wire.Kind) (*place, error) {
	id := requestID(h.ID)
	if i := id.place(); i < len(c.places) {
		p := &c.places[i]
		if p.live && !p.answered && p.round == uint64(id)>>placeBits && p.frag.kind == kind {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%s for an unknown request: %w", h.Kind, ErrProtocol)
}

// leaveLocked frees the place of a fragment that is written and answered, unlocks,
// and ends the fragment.
//
// +checklocksrelease:c.mu
func (c *Channel) leaveLocked(p *place, id requestID) {
	if !p.written || !p.answered {
		c.mu.Unlock()
		return
	}
	j, err := p.frag.job, p.err
	p.live, p.frag, p.err = false, fragment{}, nil
	c.free = append(c.free, uint16(id.place()))
	if !c.jobs.Empty() {
		c.wakeLocked()
	}
	c.stager.nudge()
	c.mu.Unlock()
	j.ended(err)
}

// answered handles an ACK.
func (c *Channel) answered(h *wire.DataHeader) error {
	c.mu.Lock()
	p, err := c.findLocked(h, wire.KindPut)
	if err != nil {
		c.mu.Unlock()
		return err
	}
	p.answered, p.err = true, region.StatusError(h.Status)
	c.leaveLocked(p, requestID(h.ID))
	return nil
}

// receive handles a DATA: the bytes are read to the destination of the get.
func (c *Channel) receive(r *reader, h *wire.DataHeader) error {
	c.mu.Lock()
	p, err := c.findLocked(h, wire.KindGet)
	if err != nil {
		c.mu.Unlock()
		return err
	}
	// From here on, a second answer to the same request is refused.
	p.answered = true
	f := p.frag
	c.mu.Unlock()
	if h.Status != wire.StatusOK {
		c.gotten(requestID(h.ID), region.StatusError(h.Status))
		return nil
	}
	if uint64(h.Length) != uint64(f.n) {
		return fmt.Errorf("DATA of %d bytes for a GET of %d: %w", h.Length, uint64(f.n), ErrProtocol)
	}
	if f.job.failed() {
		// Bytes after a missing part would extend a file beyond its valid part.
		if err = r.discard(int(h.Length)); err == nil {
			c.gotten(requestID(h.ID), errPartFailed)
		}
		return err
	}
	if dst := f.local.Host(f.off, f.n); dst != nil {
		if err = r.payload(dst); err != nil {
			return err
		}
		c.gotten(requestID(h.ID), nil)
		return nil
	}
	return c.lander.take(r, landing{buffer: f.local, off: f.off, n: f.n, id: requestID(h.ID), get: true})
}

// errPartFailed reports a part that was not stored; another part has the error
// that is returned.
var errPartFailed = errors.New("tcp: another part of the transfer has failed")

// wanted reports whether the bytes of a get are still to be stored.
func (c *Channel) wanted(id requestID) bool {
	c.mu.Lock()
	j := c.places[id.place()].frag.job
	c.mu.Unlock()
	return !j.failed()
}

// gotten ends a get of ours.
func (c *Channel) gotten(id requestID, err error) {
	c.mu.Lock()
	p := &c.places[id.place()]
	p.answered, p.written, p.err = true, true, err
	c.leaveLocked(p, id)
}
