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
	// head and window are those of the message, where at is an offset.
	head    head
	window  uint64
	refusal wire.Status
	// req is 0 once the library does nothing for it any more.
	req    request
	status Status
}

// The bounds of what the library is given at a time. More waits with us, so
// that what is first is told first, and the end finds little to give up.
const (
	// maxFlushes is the number of batches.
	maxFlushes = 8
	// batchBytes and batchOps end a batch that has reached them: small
	// operations share a flush, large ones have their own.
	batchBytes = 1 << 20
	batchOps   = 64
)

// batch is the operations that one flush makes sure of.
type batch struct {
	ops []*op
	// seen are the first ops of which the library has done its part.
	seen   int
	flush  request
	status Status
}

// line has what is to be done and under way, in the order in which it came. It
// is the worker's goroutine's own.
type line struct {
	// waiting have not begun; the first is at head.
	waiting []*op
	head    int
	// flushing wait for their flush, the oldest first.
	flushing []*batch
	// spare are batches to use again.
	spare []*batch
	// over are ops that have completed, to be used again.
	over []*op
}

// push adds what has not begun.
func (l *line) push(ops []*op) {
	if l.head == len(l.waiting) {
		l.waiting, l.head = l.waiting[:0], 0
	}
	l.waiting = append(l.waiting, ops...)
}

// more says whether anything has not begun.
func (l *line) more() bool { return l.head < len(l.waiting) }

// next takes the first of what has not begun.
func (l *line) next() *op {
	o := l.waiting[l.head]
	l.waiting[l.head] = nil
	l.head++
	return o
}

// fresh is an empty batch.
func (l *line) fresh() *batch {
	n := len(l.spare)
	if n == 0 {
		return &batch{}
	}
	b := l.spare[n-1]
	l.spare = l.spare[:n-1]
	return b
}

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
}

// post begins what may begin, and flushes: the library is done with a put when
// its memory may be used again, and the peer has the bytes when a flush is
// through.
func (p *Provider) post() {
	l := &p.line
	if !p.ctx.direct() {
		for l.more() && len(p.talk.asked) < maxAsked {
			p.ask(l.next())
		}
		return
	}
	for l.more() && len(l.flushing) < maxFlushes {
		b := l.fresh()
		for bytes := 0; l.more() && bytes < batchBytes && len(b.ops) < batchOps; {
			o := l.next()
			p.begin(o)
			b.ops = append(b.ops, o)
			bytes += len(o.mem)
		}
		if b.flush = p.call.flush(p.endpoint); !b.flush.under() {
			b.status, b.flush = b.flush.status(), 0
		}
		l.flushing = append(l.flushing, b)
	}
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
