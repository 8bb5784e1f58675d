package fabric

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// registry holds the fabrics over one communicator, and handles the packets of their port.
// It lives as long as the communicator.
type registry struct {
	mu sync.RWMutex
	// byName holds the fabrics of domains; byNumber holds these and all copies.
	// +checklocks:mu
	byName map[string]*over
	// +checklocks:mu
	byNumber map[uint64]*over
}

// registryOf returns the registry of a communicator.
func registryOf(c *comm.Communicator) (*registry, error) {
	r := &registry{byName: map[string]*over{}, byNumber: map[uint64]*over{}}
	err := c.Handle(wire.PortFabric, r)
	if errors.Is(err, comm.ErrPort) {
		if have, ok := c.Handler(wire.PortFabric).(*registry); ok {
			return have, nil
		}
	}
	return r, err
}

// add registers a fabric by name and number. A domain has one fabric at a time.
func (r *registry) add(o *over) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName[o.name] != nil {
		return fmt.Errorf("domain %q already has a fabric: %w", o.name, ErrProtocol)
	}
	r.byName[o.name], r.byNumber[o.nonce] = o, o
	return nil
}

// addCopy registers a copy under its number.
func (r *registry) addCopy(o *over) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byNumber[o.nonce] = o
}

func (r *registry) remove(o *over) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byNumber, o.nonce)
	if r.byName[o.name] == o {
		delete(r.byName, o.name)
	}
}

// Packet handles a packet of a peer. One for a fabric that does not exist here yet is
// dropped: its sender sends it again.
func (r *registry) Packet(from comm.Origin, b []byte) error {
	p, err := parsePacket(b)
	if err != nil {
		return err
	}
	r.mu.RLock()
	o := r.byNumber[p.to]
	if p.to == 0 {
		o = r.byName[p.name] // the sender does not know our number yet
	}
	r.mu.RUnlock()
	if o != nil {
		o.packet(from, &p)
	}
	return nil
}

// Ended marks the links with a peer as lost. No fabric is closed meanwhile: Close first
// removes it from the registry.
func (r *registry) Ended(from comm.Origin, cause error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, o := range r.byNumber {
		if rank, ok := o.rankOf(from.Rank); ok {
			o.hearLost(rank, cause)
			o.notify()
		}
	}
}
