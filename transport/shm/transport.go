package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/window"
)

// Options configures the transport.
type Options struct {
	// Devices are those on which memory of a peer is opened if the peer shares it
	// by a handle. They are borrowed, and must outlive the sessions.
	Devices []devices.Device
}

// Transport makes providers. It may be used from any goroutine.
type Transport struct{ opts Options }

var _ window.Transport = (*Transport)(nil)

// New returns the transport.
func New(o Options) *Transport { return &Transport{opts: o} }

// Propose returns the identity of this process and its host.
func (t *Transport) Propose(s window.Setting) ([]byte, error) {
	if _, err := sameUser(s.Conn); err != nil {
		return nil, err
	}
	own, err := ownFacts()
	if err != nil {
		return nil, err
	}
	return own.append(nil), nil
}

// Evaluate checks that the peer is on this host and of this user.
func (t *Transport) Evaluate(s window.Setting, proposal []byte) error {
	peer, err := parseFacts(proposal)
	if err != nil {
		return err
	}
	return evaluate(s.Conn, peer)
}

// Open allocates our ring.
func (t *Transport) Open(s window.Setting) (window.Starter, error) {
	in, err := newRing()
	if err != nil {
		return nil, fmt.Errorf("shared memory with %s: %w", s.Peer, err)
	}
	return &starter{opts: t.opts, setting: s, in: in}, nil
}

// starter holds our ring until that of the peer arrives.
type starter struct {
	opts    Options
	setting window.Setting
	in      *ring
}

// startSize is the size, in bytes, of a starter's data: the version and the
// number of slots.
const startSize = 8

// Start offers our ring to the peer.
func (s *starter) Start() window.Offer {
	p := binary.LittleEndian.AppendUint32(nil, version)
	return window.Offer{
		Blob:  binary.LittleEndian.AppendUint32(p, slots),
		Files: []*os.File{s.in.memory, s.in.filled, s.in.emptied},
	}
}

// Handshake opens the peer's ring.
func (s *starter) Handshake(peer window.Offer) (window.Provider, error) {
	var out *ring
	err := errors.New("the peer's ring has a different format")
	if len(peer.Blob) == startSize && binary.LittleEndian.Uint32(peer.Blob) == version &&
		binary.LittleEndian.Uint32(peer.Blob[4:]) == slots && len(peer.Files) == 3 {
		out, err = openRing(peer.Files[0], peer.Files[1], peer.Files[2])
	}
	if err != nil {
		for _, f := range peer.Files {
			_ = f.Close()
		}
		s.Close()
		return nil, err
	}
	return newProvider(s.opts, s.setting, s.in, out), nil
}

// Close releases our ring.
func (s *starter) Close() { _ = s.in.close() }
