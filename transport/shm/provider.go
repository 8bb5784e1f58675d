package shm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/gate"
	"github.com/hmcfs/hmcfs/transport/internal/queue"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	// inline is the largest operation, in bytes, that Start moves itself although
	// its caller does not wait for the completion.
	inline = 32 * devices.KiB
	// piece is the number of bytes that are moved between two checks whether the
	// session has ended.
	piece = 4 * devices.MiB
	// maxWorkers bounds the operations that are moved concurrently, in addition
	// to those of waiting goroutines.
	maxWorkers = 4
)

// provider implements shared memory with one peer.
type provider struct {
	opts    Options
	setting window.Setting
	in      *receiver
	out     *sender
	// life ends with the provider, and with it the moves in progress. fail ends it:
	// the first cause is kept.
	life    context.Context //nolint:containedctx // it is the lifetime of the provider, from newProvider to Close
	fail    context.CancelCauseFunc
	gate    gate.Gate
	running sync.WaitGroup

	mu sync.Mutex
	// queue holds the operations that wait for a worker.
	// +checklocks:mu
	queue queue.Queue[job]
	// workers is the number of worker goroutines.
	// +checklocks:mu
	workers int
}

// job is an operation for a worker.
type job struct {
	window *opened
	op     *window.Op
	done   window.Completer
}

var (
	_ window.Provider = (*provider)(nil)
	_ window.Tags     = (*provider)(nil)
)

func newProvider(o Options, s window.Setting, in, out *ring) *provider {
	p := &provider{
		opts: o, setting: s,
		in: &receiver{ring: in, turn: newTurn()}, out: &sender{ring: out, turn: newTurn()},
	}
	p.life, p.fail = context.WithCancelCause(context.Background())
	return p
}

// Done is closed when the provider ends.
func (p *provider) Done() <-chan struct{} { return p.life.Done() }

// Err returns the cause of the provider's end.
func (p *provider) Err() error { return context.Cause(p.life) }

// Close ends the operations, and keeps the tags left in the ring.
func (p *provider) Close() {
	p.fail(errEnded())
	p.gate.Shut()
	for {
		j, ok := p.next(false)
		if !ok {
			break
		}
		p.end(j, p.Err())
	}
	// Running operations check after each piece.
	p.gate.Drain()
	p.running.Wait()
	p.in.end()
	p.out.end()
}

// SendTag stores a tag in the peer's ring.
func (p *provider) SendTag(ctx context.Context, t wire.Tag) error {
	return p.checked(p.out.send(ctx, t))
}

// RecvTag returns the next tag from our ring.
func (p *provider) RecvTag(ctx context.Context) (wire.Tag, error) {
	t, err := p.in.next(ctx)
	return t, p.checked(err)
}

// checked ends the session if the peer breaks the protocol.
func (p *provider) checked(err error) error {
	if errors.Is(err, errRing) {
		p.fail(err)
	}
	return err
}

// Export describes the memory of a buffer for the peer.
func (p *provider) Export(b *region.Buffer, rights wire.Rights) (window.Export, error) {
	if err := b.Hold(); err != nil {
		return nil, err
	}
	x, err := export(b, rights)
	if err != nil {
		b.Drop()
		if !errors.Is(err, devices.ErrUnsupported) {
			// Whatever is wrong with the memory, the data connections will report
			// it.
			err = fmt.Errorf("%w: %w", devices.ErrUnsupported, err)
		}
		return nil, fmt.Errorf("share %v with %s: %w", b.Size(), p.setting.Peer, err)
	}
	return x, nil
}

// Import opens memory of the peer.
func (p *provider) Import(o window.Offer, size devices.Size, rights wire.Rights) (window.Window, error) {
	w, err := p.open(o, size, rights)
	if err != nil {
		for _, f := range o.Files {
			// It was only received: no write is lost.
			_ = f.Close()
		}
		p.setting.Logger.Debug("can't open memory of the peer", zap.Uint32("rank", uint32(p.setting.Peer)), zap.Error(err))
		return nil, err
	}
	return w, nil
}

// start starts an operation.
func (p *provider) start(j job) {
	if !p.gate.Enter() {
		j.done.Complete(errEnded())
		return
	}
	if j.op.Waits || j.op.Size <= inline {
		p.end(j, j.window.move(p.life, j.op))
		return
	}
	p.mu.Lock()
	if err := p.Err(); err != nil {
		p.mu.Unlock()
		p.end(j, err)
		return
	}
	p.queue.Push(j)
	if p.workers < min(maxWorkers, runtime.GOMAXPROCS(0)) {
		p.workers++
		p.running.Go(p.work)
	}
	p.mu.Unlock()
}

// end completes an operation.
func (p *provider) end(j job, err error) {
	j.done.Complete(err)
	p.gate.Leave()
}

// next removes an operation from the queue. A worker for which there is none must
// end.
func (p *provider) next(worker bool) (job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queue.Empty() {
		if worker {
			p.workers--
		}
		return job{}, false
	}
	return p.queue.Pop(), true
}

// work performs queued operations, and ends when there are none.
func (p *provider) work() {
	for {
		j, ok := p.next(true)
		if !ok {
			return
		}
		p.end(j, j.window.move(p.life, j.op))
	}
}
