package ucx

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Transport offers the library to sessions. It is a window.Transport, and may
// be used from any goroutine. Nothing is opened before the first session asks.
type Transport struct {
	lib  *Library
	opts Options

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// context is made at the first use, and stays.
	// +checklocks:mu
	context *Context
	// probe is a worker that nobody uses: peers see by its address whether they
	// reach this process.
	// +checklocks:mu
	probe *Provider
}

var _ window.Transport = (*Transport)(nil)

// NewTransport makes a transport; the library is borrowed. Close ends it.
func NewTransport(lib *Library, o Options) *Transport { return &Transport{lib: lib, opts: o} }

// open makes the context and the probe, if there are none.
func (t *Transport) open() (*Context, *Provider, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, nil, fmt.Errorf("transport ucx: %w", devices.ErrClosed)
	}
	if t.context != nil {
		return t.context, t.probe, nil
	}
	c, err := t.lib.Open(t.opts)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.NewProvider(0)
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	t.context, t.probe = c, p
	return c, p, nil
}

// Propose returns where the probe is reached, or says why there is no library.
func (t *Transport) Propose(window.Setting) ([]byte, error) {
	_, probe, err := t.open()
	if err != nil {
		return nil, err
	}
	if n := len(probe.Address()); n > wire.MaxFacts {
		return nil, fmt.Errorf("transport ucx: the address has %d bytes, more than %d; allow fewer devices by UCX_NET_DEVICES", n, wire.MaxFacts)
	}
	return probe.Address(), nil
}

// Judge looks whether any of the library's transports leads to the peer: a
// worker that is made for it connects to the peer's probe.
func (t *Transport) Judge(_ window.Setting, facts []byte) error {
	c, _, err := t.open()
	if err != nil {
		return err
	}
	p, err := c.NewProvider(0)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Connect(facts)
}

// Open makes a worker for a session.
func (t *Transport) Open(s window.Setting) (window.Starter, error) {
	c, _, err := t.open()
	if err != nil {
		return nil, err
	}
	p, err := c.NewProvider(s.Timeout)
	if err != nil {
		return nil, err
	}
	return &starter{p}, nil
}

// Close ends the transport.
//
// Preconditions: its sessions have ended.
func (t *Transport) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.context == nil {
		return nil
	}
	t.probe.Close()
	c := t.context
	t.context, t.probe = nil, nil
	return c.Close()
}

// starter is a provider that knows no peer yet.
type starter struct{ p *Provider }

// Start is the worker's address.
func (s *starter) Start() window.Offer { return window.Offer{Blob: s.p.Address()} }

// Meet connects the worker to the peer's.
func (s *starter) Meet(peer window.Offer) (window.Provider, error) {
	err := closeFiles(peer)
	if err == nil {
		err = s.p.Connect(peer.Blob)
	}
	if err != nil {
		s.p.Close()
		return nil, err
	}
	return s.p, nil
}

// Close ends the worker.
func (s *starter) Close() { s.p.Close() }

// closeFiles refuses an offer with descriptors: ours have none.
func closeFiles(o window.Offer) error {
	var errs []error
	for _, f := range o.Files {
		errs = append(errs, fmt.Errorf("%w: it has a descriptor", ErrOffer), f.Close())
	}
	return errors.Join(errs...)
}
