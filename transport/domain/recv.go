package domain

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/region"
)

// message is a message from a peer, or from our own rank. It is guarded by pair.mu.
type message struct {
	envelope

	total devices.Size
	// got is the number of bytes that have arrived; data holds those that arrived before
	// their receive.
	got  devices.Size
	data []byte
	// recv is the matching receive. If direct is set, bytes go directly to its views, at
	// position at.
	recv   *Request
	direct bool
	at     cursor
	// asked reports that the message was announced, and then requested.
	asked bool
	// dropped reports that the bytes are discarded.
	dropped bool
	// taken is set when the message's share of the window is returned.
	taken bool
	// from is the send, if it is our own.
	from *Request
}

// flush is a Flush request of a peer that is not answered yet.
type flush struct {
	id   uint64
	left int
}

// recv starts a receive.
func (p *pair) recv(r *Request) error {
	if err := r.hold(); err != nil {
		return r.describe(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if m, ok := p.unexpected.pop(r.tag); ok {
		id := m.id
		p.meetLocked(r, m)
		p.noticedLocked(id)
		return nil
	}
	if p.err != nil {
		drop(r.views)
		return r.describe(p.err)
	}
	p.posted.push(r.tag, r)
	return nil
}

// maxFree bounds the messages that are kept for reuse, and maxFreeData the bytes that each
// of them keeps.
const (
	maxFree     = 16
	maxFreeData = 64 << 10
)

// newMessageLocked returns an empty message.
//
// +checklocks:p.mu
func (p *pair) newMessageLocked() *message {
	n := len(p.free)
	if n == 0 {
		return &message{}
	}
	m := p.free[n-1]
	p.free = p.free[:n-1]
	return m
}

// takenLocked returns a message's share of the window.
//
// +checklocks:p.mu
func (p *pair) takenLocked(m *message) {
	if m.taken {
		return
	}
	m.taken = true
	p.owed += cost(len(m.extents), m.eager, m.total)
	if p.owed >= uint64(p.c.d.opts.Window)/4 {
		p.tell(appendNumber(nil, opCredit, p.remote, p.owed))
		p.held -= p.owed
		p.owed = 0
	}
	// A pull may still use a message that is fetched.
	if m.eager && len(p.free) < maxFree {
		data := m.data
		if cap(data) > maxFreeData {
			data = nil
		}
		*m = message{envelope: envelope{extents: m.extents, remote: m.remote}, data: data[:0]}
		p.free = append(p.free, m)
	}
}

// messageLocked handles a Message packet.
//
// +checklocks:p.mu
func (p *pair) messageLocked(b []byte) error {
	m := p.newMessageLocked()
	if err := m.parse(b); err != nil {
		return err
	}
	m.total = m.size()
	took, window := cost(len(m.extents), m.eager, m.total), uint64(p.c.d.opts.Window)
	if took > window-p.held {
		return fmt.Errorf("%s needs %d bytes of the window here, and already uses %d of %d: %w", p.world, took, p.held, window, ErrProtocol)
	}
	p.held += took
	rest := m.rest
	m.rest = nil
	r, ok := p.posted.pop(m.tag)
	if ok {
		p.meetLocked(r, m)
	} else {
		p.unexpected.push(m.tag, m)
		p.c.d.stats.unexpected.Add(1)
	}
	if !m.eager || m.taken {
		return nil
	}
	if m.got+devices.Size(len(rest)) < m.total {
		if p.arriving[m.id] != nil {
			return fmt.Errorf("%s sent message %d twice: %w", p.world, m.id, ErrProtocol)
		}
		p.arriving[m.id] = m
	}
	if m.total == 0 {
		return nil
	}
	return p.fillLocked(m, rest)
}

// dataLocked handles a Data packet.
//
// +checklocks:p.mu
func (p *pair) dataLocked(id uint64, b []byte) error {
	m := p.arriving[id]
	if m == nil {
		return fmt.Errorf("%s continued message %d, which does not exist: %w", p.world, id, ErrProtocol)
	}
	return p.fillLocked(m, b)
}

// fillLocked adds bytes to a message.
//
// +checklocks:p.mu
func (p *pair) fillLocked(m *message, b []byte) error {
	n := devices.Size(len(b))
	if n > m.total-m.got {
		return fmt.Errorf("message %d of %s is longer than announced: %w", m.id, p.world, ErrProtocol)
	}
	m.got += n
	switch {
	case m.dropped:
	case m.direct:
		m.recv.scatter(b, &m.at)
	default:
		m.data = append(m.data, b...)
	}
	if m.got < m.total {
		return nil
	}
	delete(p.arriving, m.id)
	switch {
	case m.dropped:
		p.takenLocked(m)
	case m.recv != nil:
		p.landLocked(m)
	}
	return nil
}

// meetLocked matches a receive with a message. It completes both, or starts what will
// complete them.
//
// +checklocks:p.mu
func (p *pair) meetLocked(r *Request, m *message) {
	m.recv, r.msg = r, m
	if bad := p.disagree(r, m); bad != nil {
		p.refuseLocked(r, m, bad)
		return
	}
	switch {
	case m.from != nil:
		p.copyOwnLocked(r, m)
	case !m.eager && p.worthAsking(r, m):
		m.asked, m.direct = true, true
		p.active[r], p.arriving[m.id] = struct{}{}, m
		p.tell(appendNumber(nil, opAsk, p.remote, m.id))
	case !m.eager:
		p.pullLocked(r, m)
	case m.got == m.total:
		p.landLocked(m)
	default:
		p.active[r] = struct{}{}
		if m.direct = m.got <= copied && hosts(r.views); m.direct {
			r.scatter(m.data, &m.at)
			m.data = m.data[:0]
		}
	}
}

// smallView is the average size of a view, in bytes, below which fetching views costs more
// than requesting them as a stream.
const smallView = 16 << 10

// worthAsking reports whether an announced message is better requested as one stream than
// fetched view by view.
func (p *pair) worthAsking(r *Request, m *message) bool {
	n := devices.Size(len(r.views))
	return m.streams && n > 1 && m.total/n < smallView && hosts(r.views)
}

// disagree returns how a receive and a message differ, or nil.
func (p *pair) disagree(r *Request, m *message) *MismatchError {
	bad := func(param Param, buffer int, local, remote uint64) *MismatchError {
		return &MismatchError{
			Domain: p.c.name, Peer: p.world, Tag: r.tag, Param: param, Buffer: uint32(buffer), Local: local, Remote: remote,
		}
	}
	if len(r.views) != len(m.extents) {
		return bad(ParamBuffers, 0, uint64(len(r.views)), uint64(len(m.extents)))
	}
	for i, v := range r.views {
		x := m.extents[i]
		switch {
		case v.typ != x.typ:
			return bad(ParamType, i, uint64(v.typ), uint64(x.typ))
		case v.count != x.count:
			return bad(ParamCount, i, v.count, x.count)
		}
	}
	return nil
}

// refuseLocked ends both sides of a mismatch.
//
// +checklocks:p.mu
func (p *pair) refuseLocked(r *Request, m *message, bad *MismatchError) {
	d := done{
		id: m.id, outcome: outcomeMismatch, tag: bad.Tag, param: bad.Param, buffer: bad.Buffer, local: bad.Local, remote: bad.Remote,
	}
	if m.from != nil {
		p.endLocked(m.from, p.mismatch(&d))
	} else {
		p.tell(d.encode(p.remote))
	}
	p.endLocked(r, bad)
	m.recv, m.dropped = nil, true
	if m.from == nil && (!m.eager || m.got == m.total) {
		p.takenLocked(m)
	}
}

// copied bounds the bytes that are copied with the lock held: a goroutine copies more.
const copied = 256 << 10

// landLocked moves a complete message to the views of its receive.
//
// +checklocks:p.mu
func (p *pair) landLocked(m *message) {
	r := m.recv
	switch {
	case m.direct || m.total == 0:
	case m.total <= copied && hosts(r.views):
		var at cursor
		r.scatter(m.data, &at)
	default:
		if err := r.hold(); err != nil {
			p.endLocked(r, r.describe(err))
			break
		}
		p.active[r] = struct{}{}
		p.c.running.Go(func() { p.land(r, m) })
		return
	}
	// Credit is returned first: a peer that sends again immediately has it then.
	p.takenLocked(m)
	p.endLocked(r, nil)
}

// land completes landLocked for device memory and large messages.
//
// Preconditions: the views are held.
func (p *pair) land(r *Request, m *message) {
	var err error
	rest := m.data
	for _, v := range r.views {
		if err == nil {
			err = v.buffer.Store(p.c.life, v.off, transport.HostSpan(rest[:v.size()]))
		}
		rest = rest[v.size():]
	}
	drop(r.views)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		err = r.describe(err)
	}
	p.endLocked(r, err)
	p.takenLocked(m)
}

// pullLocked fetches a message.
//
// +checklocks:p.mu
func (p *pair) pullLocked(r *Request, m *message) {
	ctx, stop := context.WithCancel(p.c.life)
	r.stop = stop
	p.active[r] = struct{}{}
	views := r.views
	p.c.running.Go(func() {
		err := p.pull(ctx, views, m.remote)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pulledLocked(r, m, err)
	})
}

// pull gets the bytes of all views, with one request for views that are adjacent at both
// ends.
func (p *pair) pull(ctx context.Context, views []View, from []place) error {
	var all []*comm.Request
	var errs []error
	for i := 0; i < len(views); {
		n, behind := views[i].size(), i+1
		for behind < len(views) && views[behind].buffer == views[i].buffer && from[behind].Key == from[i].Key &&
			views[behind].off == views[i].off+devices.Offset(n) && from[behind].off == from[i].off+uint64(n) {
			n += views[behind].size()
			behind++
		}
		op := comm.Op{Local: views[i].buffer, LocalOff: views[i].off, Remote: from[i].Descriptor, RemoteOff: from[i].off, Size: n}
		if len(views) == behind && i == 0 {
			return p.c.d.c.Get(ctx, p.world, op)
		}
		i = behind
		r, err := p.c.d.c.GetAsync(ctx, p.world, op)
		if err != nil {
			errs = append(errs, err)
			break
		}
		all = append(all, r)
	}
	for _, r := range all {
		errs = append(errs, r.Wait(ctx))
	}
	return errors.Join(errs...)
}

// pulledLocked ends a receive that was fetched, and notifies the sender.
//
// +checklocks:p.mu
func (p *pair) pulledLocked(r *Request, m *message, err error) {
	d := done{id: m.id}
	switch {
	case r.over:
		d.outcome = outcomeWithdrawn
	case errors.Is(err, region.ErrKey):
		// The sender has revoked the key: it has given up.
		err, d.outcome = r.describe(errors.Join(ErrWithdrawn, err)), outcomeWithdrawn
	case err != nil:
		err, d.outcome = r.describe(err), outcomeFailed
	}
	p.endLocked(r, err)
	if m.taken || p.err != nil {
		return
	}
	p.tell(d.encode(p.remote))
	p.takenLocked(m)
}

// forgetLocked releases a receive that has timed out.
//
// +checklocks:p.mu
func (p *pair) forgetLocked(r *Request) {
	m := r.msg
	if m == nil {
		p.posted.remove(r.tag, r)
		return
	}
	if (m.eager || m.asked) && m.got < m.total {
		m.recv, m.direct, m.dropped = nil, false, true
	}
}

// withdrawnLocked handles a Withdraw packet: the sender gives up.
//
// +checklocks:p.mu
func (p *pair) withdrawnLocked(id uint64) {
	var m *message
	for other := range p.unexpected.all() {
		if other.id == id {
			m = other
		}
	}
	for r := range p.active {
		if r.msg.id == id {
			m = r.msg
		}
	}
	if m == nil {
		m = p.arriving[id]
	}
	if m == nil || m.taken || m.eager && m.got == m.total {
		return
	}
	delete(p.arriving, id)
	waited := p.unexpected.remove(m.tag, m)
	if m.recv != nil {
		p.endLocked(m.recv, m.recv.describe(ErrWithdrawn))
	}
	d := done{id: id, outcome: outcomeWithdrawn}
	p.tell(d.encode(p.remote))
	p.takenLocked(m)
	if waited {
		p.noticedLocked(id)
	}
}

// flushLocked handles a Flush packet: it is answered when all messages sent before it are
// matched with receives.
//
// +checklocks:p.mu
func (p *pair) flushLocked(id uint64) error {
	switch {
	case len(p.flushes) >= MaxViews:
		return fmt.Errorf("%s has %d flushes in progress: %w", p.world, len(p.flushes), ErrProtocol)
	case p.unexpected.n == 0:
		p.tell((&done{id: id}).encode(p.remote))
	default:
		p.flushes = append(p.flushes, flush{id, p.unexpected.n})
	}
	return nil
}

// noticedLocked updates the waiting flushes when a message leaves the unexpected ones.
//
// +checklocks:p.mu
func (p *pair) noticedLocked(id uint64) {
	left := p.flushes[:0]
	for _, f := range p.flushes {
		if id < f.id {
			f.left--
		}
		if f.left > 0 {
			left = append(left, f)
			continue
		}
		p.tell((&done{id: f.id}).encode(p.remote))
	}
	p.flushes = left
}
