package hetero

import (
	"context"
	"sync"
)

// Future is the completion of one key's transfer. Its methods may be called from any
// goroutine.
type Future struct {
	key  string
	done chan struct{}
	err  error // written before done is closed
	mu   sync.Mutex
	// ended is set once then is no longer used.
	// +checklocks:mu
	ended bool
	// +checklocks:mu
	then []func()
}

// NewFuture returns a future, and the function that completes it, to be called exactly once.
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

// Then registers a function to be called when the transfer has ended: by the goroutine that
// completes it, or at once if it has ended. The function must be fast. So following many
// futures does not need a goroutine for each.
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

// Key returns the key that the future belongs to.
func (f *Future) Key() string { return f.key }

// Done returns a channel that is closed when the transfer has ended.
func (f *Future) Done() <-chan struct{} { return f.done }

// Err returns the error of the transfer; nil while it has not ended, and if it succeeded.
func (f *Future) Err() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// Wait returns when the transfer has ended, with its error. If the context ends first, the
// error is ErrTimeout for a deadline and ErrInterrupted for a cancellation; the transfer
// continues, and Wait may be called again.
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

// Batch is the completion of a call that continues in the background.
type Batch struct {
	done    chan struct{}
	results Results // written before done is closed
}

// NewBatch returns a batch, and the function that completes it, to be called exactly once.
func NewBatch() (b *Batch, settle func(Results)) {
	b = &Batch{done: make(chan struct{})}
	return b, func(r Results) {
		b.results = r
		close(b.done)
	}
}

// Done returns a channel that is closed when the call has ended.
func (b *Batch) Done() <-chan struct{} { return b.done }

// Wait returns the result of every key, and Results.Outcome. If the context ends first, there
// are no results and the error is that of Future.Wait; the call continues.
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
