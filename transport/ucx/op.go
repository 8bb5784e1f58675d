package ucx

import (
	"github.com/hmcfs/hmcfs/transport/internal/queue"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// op is one put or get of host memory, as the worker's goroutine sees it.
type op struct {
	kind wire.Kind
	// mem is local memory: it must stay valid until done is called.
	mem []byte
	// at is an address at the peer, which key opens.
	at   uint64
	key  remoteKey
	done window.Completer
	// head and window belong to the message mode, in which at is an offset.
	head    head
	window  uint64
	refusal wire.Status
	// req is 0 once the library has finished with it.
	req    request
	status Status
}

// The bounds of the work passed to the library at a time. Further operations wait
// in this package, so that the first ones complete first, and the end has little
// to abandon.
const (
	// maxFlushes is the number of batches.
	maxFlushes = 8
	// batchBytes and batchOps complete a batch that has reached them: small
	// operations share a flush, large ones have their own.
	batchBytes = 1 << 20
	batchOps   = 64
)

// batch holds the operations that one flush covers.
type batch struct {
	ops []*op
	// seen is the number of leading ops that the library has finished.
	seen   int
	flush  request
	status Status
}

// spares holds values for reuse.
type spares[T any] []*T

// take returns one of them, or a new value.
func (s *spares[T]) take() *T {
	n := len(*s)
	if n == 0 {
		return new(T)
	}
	v := (*s)[n-1]
	*s = (*s)[:n-1]
	return v
}

// line holds the waiting and running operations, in order of arrival. Only the
// worker's goroutine uses it.
type line struct {
	// waiting holds those not yet started.
	waiting queue.Queue[*op]
	// flushing holds the batches that wait for their flush.
	flushing queue.Queue[*batch]
	// spare holds batches for reuse.
	spare spares[batch]
	// over holds ops that have completed, for reuse.
	over []*op
}

// recycle keeps an empty batch for reuse.
func (l *line) recycle(b *batch) {
	clear(b.ops)
	*b = batch{ops: b.ops[:0]}
	l.spare = append(l.spare, b)
}

// begin passes an op to the library.
func (p *Provider) begin(o *op) {
	f := p.api.Put
	if o.kind == wire.KindGet {
		f = p.api.Get
	}
	o.req, o.status = p.call.move(f, p.endpoint, o.mem, o.at, o.key).started()
}

// post starts as many operations as allowed, and flushes: a completed put means
// only that its memory may be reused; the peer has the bytes when a flush is
// complete.
func (p *Provider) post() {
	l := &p.line
	if !p.ctx.direct() {
		for !l.waiting.Empty() && len(p.messages.asked) < maxAsked {
			p.ask(l.waiting.Pop())
		}
		return
	}
	for !l.waiting.Empty() && l.flushing.Len() < maxFlushes {
		b := l.spare.take()
		for bytes := 0; !l.waiting.Empty() && bytes < batchBytes && len(b.ops) < batchOps; {
			o := l.waiting.Pop()
			p.begin(o)
			b.ops = append(b.ops, o)
			bytes += len(o.mem)
		}
		b.flush, b.status = p.call.flush(p.endpoint).started()
		l.flushing.Push(b)
	}
}

// reap completes the batches that are through, the oldest first, and returns
// their number.
func (p *Provider) reap() (n int) {
	for !p.line.flushing.Empty() && p.through(p.line.flushing.First()) {
		p.complete(p.line.flushing.Pop())
		n++
	}
	return n
}

// through reports whether the library has finished with a batch. A failure ends
// the provider at once: the library does not reuse an endpoint that has failed,
// and all other operations end with it.
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

// complete completes the operations of a batch.
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
