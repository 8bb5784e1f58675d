package ucx

import (
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// op is one put or get of host memory, as the worker's goroutine sees it.
type op struct {
	kind wire.Kind
	// mem is ours: it must stay until done is told.
	mem []byte
	// at is an address of the peer's, which key opens.
	at   uint64
	key  remoteKey
	done window.Completer
	// req is 0 once the library does nothing for it any more.
	req    request
	status Status
}

// maxFlushes is how many batches wait at a time. More wait for those, as one.
const maxFlushes = 4

// batch is the operations that one flush makes sure of.
type batch struct {
	ops []*op
	// seen are the first ops of which the library has done its part.
	seen   int
	flush  request
	status Status
}

// line is what is under way, in the order in which it was begun. It is the
// worker's goroutine's own.
type line struct {
	// open takes what begins.
	open *batch
	// flushing wait for their flush, the oldest first.
	flushing []*batch
	// spare are batches to use again.
	spare []*batch
	// over are ops that have completed, to be used again.
	over []*op
}

// add puts an op that has begun into the open batch.
func (l *line) add(o *op) {
	if l.open == nil {
		if n := len(l.spare); n > 0 {
			l.open, l.spare = l.spare[n-1], l.spare[:n-1]
		} else {
			l.open = &batch{}
		}
	}
	l.open.ops = append(l.open.ops, o)
}

// empty says that nothing is under way.
func (l *line) empty() bool { return l.open == nil && len(l.flushing) == 0 }

// pop takes the oldest batch.
func (l *line) pop() *batch {
	b := l.flushing[0]
	n := copy(l.flushing, l.flushing[1:])
	l.flushing[n] = nil
	l.flushing = l.flushing[:n]
	return b
}

// recycle keeps an empty batch.
func (l *line) recycle(b *batch) {
	clear(b.ops)
	*b = batch{ops: b.ops[:0]}
	l.spare = append(l.spare, b)
}

// begin gives an op to the library.
func (p *Provider) begin(o *op) {
	if o.kind == wire.KindPut {
		o.req = p.call.put(p.endpoint, o.mem, o.at, o.key)
	} else {
		o.req = p.call.get(p.endpoint, o.mem, o.at, o.key)
	}
	if !o.req.under() {
		o.status, o.req = o.req.status(), 0
	}
	p.line.add(o)
}

// flush begins to wait for what the open batch has begun: the library is done
// with a put when its memory may be used again, and the peer has the bytes
// when a flush is through.
func (p *Provider) flush() {
	l := &p.line
	if l.open == nil || len(l.flushing) == maxFlushes {
		return
	}
	b := l.open
	l.open = nil
	b.flush = p.call.flush(p.endpoint)
	if !b.flush.under() {
		b.status, b.flush = b.flush.status(), 0
	}
	l.flushing = append(l.flushing, b)
}

// reap completes the batches that are through, the oldest first, and returns
// how many.
func (p *Provider) reap() (n int) {
	for len(p.line.flushing) > 0 && p.through(p.line.flushing[0]) {
		p.complete(p.line.pop())
		n++
	}
	return n
}

// through says whether the library is done with a batch. A failure ends the
// provider at once: the library does not use an endpoint again that has
// failed, and what else is under way ends with it.
func (p *Provider) through(b *batch) bool {
	if !p.call.settled(&b.flush, &b.status) {
		return false
	}
	if b.status.failed() {
		p.end(p.lost("ucp_ep_flush_nbx", b.status))
	}
	for ; b.seen < len(b.ops); b.seen++ {
		o := b.ops[b.seen]
		if !p.call.settled(&o.req, &o.status) {
			return false
		}
		if o.status.failed() {
			p.end(p.lost("put or get", o.status))
		}
	}
	return true
}

// complete tells those who wait for a batch.
func (p *Provider) complete(b *batch) {
	for _, o := range b.ops {
		var err error
		if o.status.failed() || b.status.failed() {
			err = p.Err()
		}
		o.done.Complete(err)
		*o = op{}
		p.line.over = append(p.line.over, o)
	}
	p.line.recycle(b)
}
