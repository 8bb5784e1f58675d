package ucx

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/window"
)

// Provider is one session's worker, and its endpoint to the peer. It implements
// window.Provider.
type Provider struct {
	ctx *Context
	api *api
	// address is the blob for the peer.
	address []byte
	// wakeup is the worker's event descriptor.
	wakeup *wakeup
	// life ends with the provider, with the cause, while mu is held; stopped is
	// closed when nothing of it runs any more.
	life    context.Context //nolint:containedctx // operations end with the provider, not with a call
	kill    context.CancelCauseFunc
	stopped chan struct{}
	// staging counts the goroutines that move device memory.
	staging sync.WaitGroup

	// self is the worker as an argument of the wake call.
	self [1]uintptr

	// worker and the following fields belong to the goroutine that runs the
	// worker.
	worker   workerHandle
	endpoint endpointHandle
	keys     map[remoteKey]struct{}
	line     line
	call     *caller
	// watched means that the library monitors the peer, and can end an endpoint
	// without it.
	watched bool
	// user is the provider's address, the user data of the library's callbacks.
	// It is pinned until the worker is destroyed.
	user uintptr
	pin  runtime.Pinner
	// detached makes callbacks do nothing.
	detached bool
	// failure is the first failure that the library has reported.
	failure  Status
	messages messageOps

	mu sync.Mutex
	// ops and calls are queued for the worker's goroutine.
	// +checklocks:mu
	ops []*op
	// +checklocks:mu
	calls []func()
	// taken is the previous ops slice, for reuse.
	// +checklocks:mu
	taken []*op
	// idle holds ops for reuse.
	// +checklocks:mu
	idle spares[op]
	// asleep means that the worker's goroutine waits for its wakeup, or is about
	// to.
	// +checklocks:mu
	asleep bool
	// +checklocks:mu
	stall stall
	// exports holds those that the peer may name in messages.
	// +checklocks:mu
	exports map[uint64]*export
}

var _ window.Provider = (*Provider)(nil)

// NewProvider makes a worker for one session, and runs it until Close. A peer
// that makes no progress within the timeout while an operation is pending is
// given up; 0 means no timeout.
func (c *Context) NewProvider(timeout time.Duration) (*Provider, error) {
	p := &Provider{
		ctx: c, api: c.api, stopped: make(chan struct{}),
		keys: map[remoteKey]struct{}{}, exports: map[uint64]*export{}, messages: messageOps{asked: map[uint64]*op{}}, call: newCaller(c.api),
	}
	p.ctx.mu.Lock()
	err := p.openLocked()
	p.ctx.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("transport ucx: %w", err)
	}
	p.life, p.kill = context.WithCancelCause(context.Background())
	p.start(timeout)
	return p, nil
}

// start starts the worker's goroutine and the stall timer.
func (p *Provider) start(timeout time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stall.timeout = timeout; timeout > 0 {
		p.stall.timer = time.AfterFunc(timeout/looks, p.look)
	}
	go p.run()
}

// openLocked makes the worker and the data that describe it.
//
// +checklocks:p.ctx.mu
func (p *Provider) openLocked() (err error) {
	if p.ctx.closed {
		return fmt.Errorf("context: %w", devices.ErrClosed)
	}
	if p.worker, err = p.api.createWorker(p.ctx.handle); err != nil {
		return err
	}
	p.self[0] = uintptr(p.worker)
	p.attach()
	if err = p.describe(); err != nil {
		p.destroyWorkerLocked()
	}
	return err
}

// describe obtains the data that peers and the worker's goroutine need.
func (p *Provider) describe() error {
	if !p.ctx.direct() {
		if err := p.api.handleMessages(p.worker, p.user); err != nil {
			return err
		}
	}
	address, err := p.api.address(p.worker)
	if err != nil {
		return err
	}
	if p.address, err = encodeBlob(p.ctx.kind(), address); err != nil {
		return fmt.Errorf("address of this process: %w", err)
	}
	fd, err := p.api.eventFD(p.worker)
	if err != nil {
		return err
	}
	p.wakeup, err = newWakeup(fd)
	return err
}

// Address returns the argument for the peer's Connect. It must not be changed.
func (p *Provider) Address() []byte { return p.address }

// Connect connects to the peer with the given Address. It is called once, before
// Import.
//
// Errors: ErrOffer for an invalid address, ErrPeer for a peer that can't be
// reached.
func (p *Provider) Connect(peer []byte) error {
	address, err := decodeBlob(p.ctx.kind(), peer)
	if err != nil {
		return fmt.Errorf("address of a peer: %w", err)
	}
	padded := append(append([]byte(nil), address...), make([]byte, keyPadding)...)
	return p.do(func() error { return p.connect(padded) })
}

// connect makes the endpoint, on transports that can detect a lost peer. If the
// two have none in common, as with shared memory, it uses others: then the
// session detects the loss, and ends the provider by Close.
func (p *Provider) connect(address []byte) (err error) {
	if p.endpoint != 0 {
		return errors.New("transport ucx: already connected")
	}
	p.endpoint, err = p.api.connect(p.worker, address, errorModePeer, p.user)
	p.watched = err == nil
	var status *StatusError
	if errors.As(err, &status) && status.Status == statusUnreachable {
		p.endpoint, err = p.api.connect(p.worker, address, errorModeNone, p.user)
	}
	if err != nil {
		p.endpoint = 0
		return fmt.Errorf("transport ucx: %w: %w", ErrPeer, err)
	}
	return p.wireUp()
}

// wireUp waits until the two ends know each other: an endpoint that ends earlier
// can end the peer's process with it.
func (p *Provider) wireUp() error {
	r, status := p.call.flush(p.endpoint).started()
	for end := time.Now().Add(wiringUp); !p.call.settled(&r, &status); {
		if p.call.progress(p.worker) == 0 {
			runtime.Gosched()
		}
		if p.Err() != nil || p.failure.failed() || time.Now().After(end) {
			return fmt.Errorf("transport ucx: %w: no answer within %v", ErrPeer, wiringUp)
		}
	}
	if status.failed() {
		return p.lost("ucp_ep_flush_nbx", status)
	}
	return nil
}

// Done is closed when the peer is lost, or with Close.
func (p *Provider) Done() <-chan struct{} { return p.life.Done() }

// Err returns the reason why Done is closed: ErrPeer, or devices.ErrClosed.
func (p *Provider) Err() error { return context.Cause(p.life) }

// Close ends the provider. It sends nothing to the peer, and does not wait for
// it.
func (p *Provider) Close() {
	p.end(fmt.Errorf("transport ucx: %w", devices.ErrClosed))
	p.staging.Wait()
	<-p.stopped
}

// end starts the end: the first cause is kept.
func (p *Provider) end(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
		return
	}
	if p.stall.timer != nil {
		p.stall.timer.Stop()
	}
	p.kill(cause)
	p.wakeLocked()
}

// lost returns the error for a status that means that the peer is lost.
func (p *Provider) lost(call string, s Status) error {
	return fmt.Errorf("transport ucx: %w: %w", ErrPeer, p.api.check(call, s))
}
