package ucx

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/window"
)

// Transport provides the library to sessions. It is a window.Transport, and may
// be used from any goroutine. Nothing is opened before the first session needs
// it.
type Transport struct {
	lib  *Library
	opts Options

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// context is made on first use, and kept.
	// +checklocks:mu
	context *Context
}

var _ window.Transport = (*Transport)(nil)

// NewTransport makes a transport; the library is borrowed. Close ends it.
func NewTransport(lib *Library, o Options) *Transport { return &Transport{lib: lib, opts: o} }

// open makes the context, if there is none.
func (t *Transport) open() (*Context, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("transport ucx: %w", devices.ErrClosed)
	}
	if t.context == nil {
		c, err := t.lib.Open(t.opts)
		if err != nil {
			return nil, err
		}
		t.context = c
	}
	return t.context, nil
}

// Propose returns the version of the library, or the reason why there is none.
func (t *Transport) Propose(window.Setting) ([]byte, error) {
	if _, err := t.open(); err != nil {
		return nil, err
	}
	version, err := t.lib.Version()
	return []byte(version), err
}

// Evaluate returns the reason why there is no library on this side. Whether the two
// can reach each other is found out only by Handshake: a trial endpoint that is ended
// at once can end the process that it leads to.
func (t *Transport) Evaluate(_ window.Setting, facts []byte) error {
	if len(facts) == 0 {
		return fmt.Errorf("%w: the library version is missing", ErrOffer)
	}
	_, err := t.open()
	return err
}

// Open makes a worker for a session.
func (t *Transport) Open(s window.Setting) (window.Starter, error) {
	c, err := t.open()
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
	c := t.context
	t.context = nil
	return c.Close()
}

// starter is a provider without a peer.
type starter struct{ p *Provider }

// Start returns the worker's address.
func (s *starter) Start() window.Offer { return window.Offer{Blob: s.p.Address()} }

// Handshake connects the worker to the peer's worker.
func (s *starter) Handshake(peer window.Offer) (window.Provider, error) {
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

// closeFiles rejects an offer with descriptors: ours have none.
func closeFiles(o window.Offer) error {
	var errs []error
	for _, f := range o.Files {
		errs = append(errs, fmt.Errorf("%w: unexpected descriptor", ErrOffer), f.Close())
	}
	return errors.Join(errs...)
}
