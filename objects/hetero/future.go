package hetero

import (
	"context"
	"sync"
)

// Future is the end of one key's transfer. Its methods may be called from any
// goroutine.
type Future struct {
	key  string
	done chan struct{}
	err  error // written before done is closed
	mu   sync.Mutex
	// ended says that then is not asked any more.
	// +checklocks:mu
	ended bool
	// +checklocks:mu
	then []func()
}

// NewFuture makes a future that settle ends, which is called exactly once.
func NewFuture(key string) (f *Future, settle func(error)) {
	f = &Future{key: key, done: make(chan struct{})}
	return f, f.settle
}

func (f *Future) settle(err error) {
	f.err = err
	close(f.done)
	f.mu.Lock()
	then := f.then
	f.ended, f.then = true, nil
	f.mu.Unlock()
	for _, call := range then {
		call()
	}
}

// Then has a function called when the transfer has ended: by whoever ends it,
// or at once if it has. It takes no time worth mentioning. Who follows many
// futures so needs no goroutine for each.
func (f *Future) Then(call func()) {
	f.mu.Lock()
	ended := f.ended
	if !ended {
		f.then = append(f.then, call)
	}
	f.mu.Unlock()
	if ended {
		call()
	}
}

// Key is the key that the future is of.
func (f *Future) Key() string { return f.key }

// Done is closed when the transfer has ended.
func (f *Future) Done() <-chan struct{} { return f.done }

// Err is why the transfer failed; nil while it has not ended, and when it
// succeeded.
func (f *Future) Err() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// Wait returns when the transfer has ended, with its error. When the context
// ends before, the error is ErrTimeout for a deadline and ErrInterrupted for a
// cancellation; the transfer goes on, and Wait may be called again.
func (f *Future) Wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	default:
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ContextError(ctx.Err())
	}
}

// Batch is the end of a call that goes on in the background.
type Batch struct {
	done    chan struct{}
	results Results // written before done is closed
}

// NewBatch makes a batch that settle ends, which is called exactly once.
func NewBatch() (b *Batch, settle func(Results)) {
	b = &Batch{done: make(chan struct{})}
	return b, func(r Results) {
		b.results = r
		close(b.done)
	}
}

// Done is closed when the call has ended.
func (b *Batch) Done() <-chan struct{} { return b.done }

// Wait returns what became of every key, and Results.Outcome. When the context
// ends before, there are no results and the error is that of Future.Wait; the
// call goes on.
func (b *Batch) Wait(ctx context.Context) (Results, error) {
	select {
	case <-b.done:
		return b.results, b.results.Outcome()
	default:
	}
	select {
	case <-b.done:
		return b.results, b.results.Outcome()
	case <-ctx.Done():
		return nil, ContextError(ctx.Err())
	}
}
