package hetero

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
)

// Future is the completion of one key's transfer. Its methods may be called from any
// goroutine.
type Future struct {
	key    string
	signal *devices.Signal
}

// NewFuture returns a future, and the function that completes it, to be called exactly once.
func NewFuture(key string) (f *Future, settle func(error)) {
	f = &Future{key: key, signal: devices.NewSignal()}
	return f, f.signal.Set
}

// Then registers a function to be called when the transfer has ended: by the goroutine that
// completes it, or at once if it has ended. The function must be fast. So following many
// futures does not need a goroutine for each.
func (f *Future) Then(call func()) { f.signal.Notify(func(error) { call() }) }

// Key returns the key that the future belongs to.
func (f *Future) Key() string { return f.key }

// Done returns a channel that is closed when the transfer has ended.
func (f *Future) Done() <-chan struct{} { return f.signal.Done() }

// Err returns the error of the transfer; nil while it has not ended, and if it succeeded.
func (f *Future) Err() error { return f.signal.Err() }

// Wait returns when the transfer has ended, with its error. If the context ends first, the
// error is ErrTimeout for a deadline and ErrInterrupted for a cancellation; the transfer
// continues, and Wait may be called again.
func (f *Future) Wait(ctx context.Context) error {
	if err := await(ctx, f.Done()); err != nil {
		return err
	}
	return f.Err()
}

// await waits until done is closed, even if the context has ended by then.
//
// Errors: ErrTimeout, ErrInterrupted.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
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
	if err := await(ctx, b.done); err != nil {
		return nil, err
	}
	return b.results, b.results.Outcome()
}
