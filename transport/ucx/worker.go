package ucx

import (
	"fmt"
	"time"
)

const (
	// spins is the number of fruitless polls before the worker sleeps: it does
	// not sleep when an answer arrives within microseconds.
	spins = 64
	// rounds is the number of progress calls before completed work is reported
	// and new work is taken.
	rounds = 16
	// parting is the time that the library gets to clean up after a lost peer.
	// After that the worker is destroyed regardless.
	parting = time.Second
	// wiringUp is the time that the peer gets for its first answer.
	wiringUp = 10 * time.Second
)

// run drives the worker. A single goroutine does, on any thread: the library
// keeps no state per thread as long as only one thread uses the worker at a time.
func (p *Provider) run() {
	defer close(p.stopped)
	for quiet, did := 0, 0; ; {
		ops, calls, ok := p.take(did)
		if !ok {
			break
		}
		for _, call := range calls {
			call()
		}
		for _, o := range ops {
			p.line.waiting.Push(o)
		}
		p.post()
		did = p.progress() + p.reap() + p.attend() + len(ops) + len(calls)
		if p.failure.failed() {
			p.end(p.lost("ucp_ep_create's error handler", p.failure))
		}
		if quiet++; did > 0 {
			quiet = 0
		}
		if quiet >= spins {
			quiet = 0
			p.sleep()
		}
	}
	p.teardown()
}

// progress makes the library progress, and returns the number of events that it
// processed.
func (p *Provider) progress() (n int) {
	for range rounds {
		did := p.call.progress(p.worker)
		if did == 0 {
			break
		}
		n += did
	}
	return n
}

// take records completed work, and returns the work to do; false means the end.
func (p *Provider) take(did int) (ops []*op, calls []func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, p.line.over...)
	p.stall.busy -= len(p.line.over)
	if did > 0 {
		p.stall.moved++
	}
	clear(p.line.over)
	p.line.over = p.line.over[:0]
	if p.life.Err() != nil {
		return nil, nil, false
	}
	ops, calls = p.ops, p.calls
	clear(p.taken)
	p.ops, p.taken = p.taken[:0], ops
	p.calls = nil
	return ops, calls, true
}

// sleep waits until the worker or the queues have work.
func (p *Provider) sleep() {
	p.mu.Lock()
	idle := p.life.Err() == nil && len(p.ops)+len(p.calls) == 0
	p.asleep = idle
	p.mu.Unlock()
	if !idle {
		return
	}
	// From here on a wake makes arming fail, or ends the wait.
	s := p.call.arm(p.worker)
	var err error
	switch {
	case s == statusOK:
		err = p.wakeup.wait()
	case s != statusBusy:
		err = p.api.check("ucp_worker_arm", s)
	}
	p.mu.Lock()
	p.asleep = false
	p.mu.Unlock()
	if err != nil {
		p.end(fmt.Errorf("transport ucx: %w", err))
	}
}

// wakeLocked wakes the worker's goroutine if it sleeps.
//
// +checklocks:p.mu
func (p *Provider) wakeLocked() {
	if p.asleep {
		p.asleep = false
		p.api.WorkerSignal.Call(p.self[:]...)
	}
}

// do makes the worker's goroutine call f, and returns its error.
func (p *Provider) do(f func() error) error {
	result := make(chan error, 1)
	p.mu.Lock()
	if err := p.Err(); err != nil {
		p.mu.Unlock()
		return err
	}
	p.calls = append(p.calls, func() { result <- f() })
	p.wakeLocked()
	p.mu.Unlock()
	select {
	case err := <-result:
		return err
	case <-p.stopped:
	}
	select {
	case err := <-result:
		return err
	default:
		return p.Err()
	}
}

// submit passes a put or get to the worker's goroutine.
func (p *Provider) submit(from op) {
	p.mu.Lock()
	if err := p.Err(); err != nil {
		p.mu.Unlock()
		from.done.Complete(err)
		return
	}
	o := p.idle.take()
	*o = from
	p.ops = append(p.ops, o)
	p.stall.busy++
	p.wakeLocked()
	p.mu.Unlock()
}

// teardown ends the endpoint and the worker. When it returns, the library
// accesses no memory for this session any more, and every pending operation has
// completed.
func (p *Provider) teardown() {
	var closing request
	if p.watched {
		closing = p.call.closeNow(p.endpoint)
	}
	for begin := time.Now(); time.Since(begin) < parting; {
		p.call.progress(p.worker)
		p.reap()
		var s Status
		if !closing.under() || p.call.settled(&closing, &s) {
			closing = 0
			if p.line.flushing.Empty() && p.quiesced() {
				break
			}
		}
	}
	for k := range p.keys {
		p.api.RkeyDestroy.Call(uintptr(k))
	}
	// No goroutine waits for it any more.
	_ = p.wakeup.Close()
	p.ctx.mu.Lock()
	p.destroyWorkerLocked()
	p.ctx.mu.Unlock()
	p.abandon()
}

// abandon completes the operations that are still pending.
func (p *Provider) abandon() {
	for !p.line.flushing.Empty() {
		b := p.line.flushing.Pop()
		b.status = statusCanceled
		p.complete(b)
	}
	p.giveUp()
	p.mu.Lock()
	left, cause := append(p.line.waiting.Drain(), p.ops...), p.Err()
	p.ops, p.calls = nil, nil
	p.mu.Unlock()
	for _, o := range left {
		o.done.Complete(cause)
	}
}

// quiesced reports whether the library has finished all operations in progress by
// messages. No more are started.
func (p *Provider) quiesced() bool {
	done := true
	for _, o := range p.messages.asked {
		done = p.call.settled(&o.req, &o.status) && done
	}
	for _, o := range p.messages.told {
		done = p.call.settled(&o.req, &o.status) && done
	}
	for _, k := range p.messages.tasks {
		done = p.call.settled(&k.req, &k.status) && done
	}
	return done
}

// giveUp completes the operations in progress by messages.
func (p *Provider) giveUp() {
	cause := p.Err()
	for _, k := range p.messages.tasks {
		if k.export != nil {
			p.unuse(k.export)
		}
		if k.op != nil {
			k.op.done.Complete(cause)
		}
	}
	for _, o := range p.messages.told {
		o.done.Complete(cause)
	}
	for _, o := range p.messages.asked {
		o.done.Complete(cause)
	}
	p.messages = messageOps{}
}
