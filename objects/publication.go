package objects

import "sync"

// Publication is an offer of a holder under a key. Its methods may be called from any
// goroutine.
type Publication struct {
	done chan struct{}

	// mu is a leaf.
	mu sync.Mutex
	// +checklocks:mu
	ended bool
	// err is written before done is closed.
	err error
	// +checklocks:mu
	then []func(error)
}

func newPublication() *Publication { return &Publication{done: make(chan struct{})} }

// Done is closed when the publication has been received completely, or withdrawn.
func (p *Publication) Done() <-chan struct{} { return p.done }

// Err returns nil if the publication has been received, and ErrWithdrawn otherwise. It
// is valid when Done is closed.
func (p *Publication) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Then has fn called once with the result of Err when the publication ends: at once, if
// it has ended already. No lock is held, and fn must not wait.
func (p *Publication) Then(fn func(error)) {
	p.mu.Lock()
	ended := p.ended
	if !ended {
		p.then = append(p.then, fn)
	}
	p.mu.Unlock()
	if ended {
		fn(p.err)
	}
}

// end ends the publication; only the first call counts. The caller holds no lock.
func (p *Publication) end(err error) {
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return
	}
	p.ended, p.err = true, err
	then := p.then
	p.then = nil
	close(p.done)
	p.mu.Unlock()
	for _, fn := range then {
		fn(err)
	}
}
