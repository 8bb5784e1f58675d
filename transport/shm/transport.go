package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/window"
)

// Options describe the transport.
type Options struct {
	// Devices are those on which memory of a peer is opened, when the peer shares it
	// by a handle. They are borrowed, and must outlive the sessions.
	Devices []devices.Device
}

// Transport makes providers. It may be used from any goroutine.
type Transport struct{ opts Options }

var _ window.Transport = (*Transport)(nil)

// New returns the transport.
func New(o Options) *Transport { return &Transport{opts: o} }

// Propose says which process of which host this is.
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

// Judge says whether the peer is of this host and this user.
func (t *Transport) Judge(s window.Setting, proposal []byte) error {
	peer, err := parseFacts(proposal)
	if err != nil {
		return err
	}
	return judge(s.Conn, peer)
}

// Open takes the memory of our ring.
func (t *Transport) Open(s window.Setting) (window.Starter, error) {
	in, err := newRing()
	if err != nil {
		return nil, fmt.Errorf("shared memory with %s: %w", s.Peer, err)
	}
	return &starter{opts: t.opts, setting: s, in: in}, nil
}

// starter has our ring, and waits for that of the peer.
type starter struct {
	opts    Options
	setting window.Setting
	in      *ring
}

// startSize is the bytes of what a starter says: the version and the number of
// slots.
const startSize = 8

// Start offers our ring to the peer.
func (s *starter) Start() window.Offer {
	p := binary.LittleEndian.AppendUint32(nil, version)
	return window.Offer{
		Blob:  binary.LittleEndian.AppendUint32(p, slots),
		Files: []*os.File{s.in.memory, s.in.filled, s.in.emptied},
	}
}

// Meet opens the peer's ring.
func (s *starter) Meet(peer window.Offer) (window.Provider, error) {
	var out *ring
	err := errors.New("the peer has other rings")
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

// Close gives our ring back.
func (s *starter) Close() { _ = s.in.close() }
