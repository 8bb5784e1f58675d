package domain

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// maxPieces bounds the pieces of memory that form one packet.
const maxPieces = 500

// stall is the reason why writing stops.
type stall uint8

const (
	// stallNone means that everything is written.
	stallNone stall = iota
	// stallCredit ends with a Credit of the peer.
	stallCredit
	// stallRoom ends when the link has room.
	stallRoom
	// stallKeys means that a message must be fetched and has no keys yet.
	stallKeys
	// stallEnd means that the session has ended: the pair will be notified.
	stallEnd
)

// reserve returns the part of a window that only envelopes may use, so that a message can
// still be announced.
func reserve(window uint64) uint64 { return window / 8 }

// mayBeEager reports whether a request may be sent eagerly, as far as its size and memory
// decide.
func (r *Request) mayBeEager() bool {
	limit := r.pair.c.d.opts.eager()
	if r.stage == nil && r.total > 0 && !hosts(r.views) {
		return false
	}
	for _, v := range r.views {
		if v.size() > limit {
			return false
		}
	}
	return true
}

// load copies a small message in device memory to the host, so that its send does not
// depend on the receive.
func (r *Request) load(ctx context.Context) error {
	if r.total == 0 || r.total > r.pair.c.d.opts.eager() || hosts(r.views) || r.pair.self {
		return nil
	}
	stage := make([]byte, r.total)
	rest := stage
	for _, v := range r.views {
		if err := v.buffer.Load(ctx, transport.HostSpan(rest[:v.size()]), v.off); err != nil {
			return err
		}
		rest = rest[v.size():]
	}
	r.stage = stage
	return nil
}

// send starts a send.
func (p *pair) send(ctx context.Context, r *Request) error {
	if p.self {
		return p.sendSelf(r) //nolint:contextcheck // copying ends with the domain
	}
	var remote []place
	if r.kind == kindSend && !r.mayBeEager() {
		var err error
		if remote, err = p.places(ctx, r.views); err != nil {
			return r.describe(err)
		}
	}
	if err := r.hold(); err != nil {
		return r.describe(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		drop(r.views)
		return r.describe(p.err)
	}
	p.last++
	r.id, r.remote = p.last, remote
	p.out.Push(r)
	if !p.pumping {
		p.goOnLocked()
	}
	return nil
}

// goOnLocked writes as much as possible now, and leaves the rest to the pump or to the
// peer's next Credit.
//
// +checklocks:p.mu
func (p *pair) goOnLocked() {
	switch why := p.writeLocked(); why {
	case stallRoom, stallKeys:
		p.pumping = true
		p.c.running.Go(func() { p.pump(why) })
	case stallNone, stallCredit, stallEnd:
	}
}

// pump writes requests that had no room or no key.
func (p *pair) pump(why stall) {
	for {
		var err error
		if why == stallRoom {
			err = p.c.d.c.AwaitRoom(p.c.life, p.world)
		} else {
			p.addKeys()
		}
		p.mu.Lock()
		if why = p.writeLocked(); err != nil || why != stallRoom && why != stallKeys {
			p.pumping = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// addKeys grants the keys for the first waiting request, or ends it with an error.
func (p *pair) addKeys() {
	p.mu.Lock()
	if p.out.Empty() {
		p.mu.Unlock()
		return
	}
	r := p.out.First()
	// The views stay valid even if the request ends meanwhile.
	views := r.views
	p.mu.Unlock()
	remote, err := p.places(p.c.life, views)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.endLocked(r, r.describe(err))
		return
	}
	r.remote = remote
}

// writeLocked writes requests until it stalls.
//
// +checklocks:p.mu
func (p *pair) writeLocked() stall {
	for !p.out.Empty() {
		r := p.out.First()
		if !r.over {
			if why := p.writeOneLocked(r); why != stallNone {
				return why
			}
		}
		p.out.Pop()
	}
	return stallNone
}

// writeOneLocked writes a request, or a part of it.
//
// +checklocks:p.mu
func (p *pair) writeOneLocked(r *Request) stall {
	if r.kind == kindFlush {
		p.sending[r.id] = r
		return p.packetLocked(appendNumber(p.scratch.head[:0], opFlush, p.remote, r.id), nil)
	}
	if !r.begun {
		if why := p.beginLocked(r); why != stallNone {
			return why
		}
	}
	for r.eager && r.wrote.n < r.total {
		head := appendNumber(p.scratch.head[:0], opData, p.remote, r.id)
		next := p.gatherLocked(r, wire.MaxPacket-len(head))
		if why := p.packetLocked(head, p.scratch.parts); why != stallNone {
			return why
		}
		r.wrote = next
	}
	if r.eager {
		p.endLocked(r, nil)
	}
	return stallNone
}

// beginLocked writes the envelope of a message and, if it is eager, as many of its bytes as
// fit into the packet.
//
// +checklocks:p.mu
func (p *pair) beginLocked(r *Request) stall {
	took := cost(len(r.views), true, r.total)
	r.eager = r.remote == nil && r.mayBeEager() && took+reserve(p.window) <= p.credit
	if !r.eager {
		if took = cost(len(r.views), false, 0); r.remote == nil {
			return stallKeys
		}
		if took > p.credit {
			return stallCredit
		}
	}
	e := &p.scratch.env
	e.tag, e.id, e.eager, e.remote, e.extents = r.tag, r.id, r.eager, r.remote, e.extents[:0]
	e.streams = !r.eager && hosts(r.views)
	for _, v := range r.views {
		e.extents = append(e.extents, v.extent)
	}
	head := e.append(p.scratch.head[:0], p.remote)
	e.remote = nil
	next, parts := r.wrote, [][]byte(nil)
	if r.eager {
		next = p.gatherLocked(r, wire.MaxPacket-len(head))
		parts = p.scratch.parts
	}
	if why := p.packetLocked(head, parts); why != stallNone {
		return why
	}
	p.credit -= took
	r.begun, r.wrote = true, next
	if r.eager {
		p.c.d.stats.eager.Add(1)
	} else {
		p.sending[r.id] = r
		p.c.d.stats.rendezvous.Add(1)
	}
	return stallNone
}

// askedLocked handles an Ask packet: the receive is posted, and the receiver requests the
// bytes of a message.
//
// +checklocks:p.mu
func (p *pair) askedLocked(id uint64) error {
	r := p.sending[id]
	switch {
	case r == nil:
		return nil // it has been withdrawn
	case r.kind != kindSend || !hosts(r.views):
		return fmt.Errorf("%s requested message %d, which must be fetched: %w", p.world, id, ErrProtocol)
	}
	delete(p.sending, id)
	r.eager = true
	p.out.Push(r)
	if !p.pumping {
		p.goOnLocked()
	}
	return nil
}

// gatherLocked collects up to n bytes to be written next, after an empty place for the
// header, and returns the cursor after them.
//
// +checklocks:p.mu
func (p *pair) gatherLocked(r *Request, n int) cursor {
	at := r.wrote
	parts := append(p.scratch.parts[:0], nil)
	for n > 0 && len(parts) < maxPieces {
		piece, behind := r.next(at, devices.Size(n))
		if at = behind; len(piece) == 0 {
			if at.view == len(r.views) {
				break
			}
			continue
		}
		parts, n = append(parts, piece), n-len(piece)
	}
	p.scratch.parts = parts
	return at
}

// packetLocked sends one packet: head and, if not nil, parts, whose first element is the
// place for head.
//
// +checklocks:p.mu
func (p *pair) packetLocked(head []byte, parts [][]byte) stall {
	p.scratch.head = head
	if parts == nil {
		parts = append(p.scratch.parts[:0], nil)
		p.scratch.parts = parts
	}
	parts[0] = head
	sent, err := p.c.d.c.TryPacket(p.world, wire.PortDomain, parts...)
	clear(parts)
	switch {
	case err != nil:
		return stallEnd
	case !sent:
		return stallRoom
	}
	return stallNone
}

// creditedLocked adds to the credit.
//
// +checklocks:p.mu
func (p *pair) creditedLocked(n uint64) error {
	if n > p.window-p.credit {
		return fmt.Errorf("%s returned %d bytes of credit, but only %d are outstanding: %w", p.world, n, p.window-p.credit, ErrProtocol)
	}
	p.credit += n
	if !p.pumping {
		p.goOnLocked()
	}
	return nil
}

// maxLate bounds the mismatches that are kept for Flush.
const maxLate = 16

// doneLocked ends the request that the peer has answered.
//
// +checklocks:p.mu
func (p *pair) doneLocked(d *done) {
	r := p.sending[d.id]
	if r == nil {
		if d.outcome == outcomeMismatch && len(p.late) < maxLate {
			p.late = append(p.late, p.mismatch(d))
		}
		return
	}
	delete(p.sending, d.id)
	switch d.outcome {
	case outcomeOK:
		p.endLocked(r, nil)
	case outcomeMismatch:
		p.endLocked(r, p.mismatch(d))
	case outcomeWithdrawn:
		if r.withdrawn != nil {
			p.endLocked(r, r.withdrawn)
			return
		}
		p.endLocked(r, r.describe(ErrWithdrawn))
	case outcomeFailed:
		p.endLocked(r, r.describe(ErrPeer))
	}
}

// mismatch converts the receiver's view of a mismatch to ours.
func (p *pair) mismatch(d *done) error {
	return &MismatchError{
		Domain: p.c.name, Peer: p.world, Tag: d.tag, Param: d.param, Buffer: d.buffer,
		Local: d.remote, Remote: d.local, Sending: true,
	}
}

// giveUpLocked starts to withdraw a request. asked reports that the receiver was asked, and
// will answer.
//
// +checklocks:p.mu
func (p *pair) giveUpLocked(r *Request, late error) (asked bool) {
	switch {
	case r.over:
		return false
	case r.kind == kindRecv:
		p.forgetLocked(r)
	case r.kind == kindFlush:
		delete(p.sending, r.id)
	case p.self:
		if r.msg.recv == nil {
			p.unexpected.remove(r.tag, r.msg)
		}
	case r.begun:
		p.tell(appendNumber(nil, opWithdraw, p.remote, r.id))
		if !r.eager {
			r.withdrawn = late
			return true
		}
	}
	p.endLocked(r, late)
	return false
}

// flushed returns the mismatches since the last flush.
func (p *pair) flushed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := errors.Join(p.late...)
	p.late = nil
	return err
}
