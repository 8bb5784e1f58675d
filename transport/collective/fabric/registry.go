package fabric

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// registry is the fabrics over one communicator: the handler of their port. It
// stays with the communicator.
type registry struct {
	mu sync.RWMutex
	// +checklocks:mu
	byName map[string]*over
}

// registryOf is that of a communicator.
func registryOf(c *comm.Communicator) (*registry, error) {
	r := &registry{byName: map[string]*over{}}
	err := c.Handle(wire.PortFabric, r)
	if errors.Is(err, comm.ErrPort) {
		if have, ok := c.Handler(wire.PortFabric).(*registry); ok {
			return have, nil
		}
	}
	return r, err
}

// add makes a fabric findable: a domain has one at a time.
func (r *registry) add(o *over) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName[o.name] != nil {
		return fmt.Errorf("a second fabric over domain %q: %w", o.name, ErrProtocol)
	}
	r.byName[o.name] = o
	return nil
}

func (r *registry) remove(o *over) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName[o.name] == o {
		delete(r.byName, o.name)
	}
}

// Packet gets a packet of a peer. One to a fabric that is not made here yet is
// sent again.
func (r *registry) Packet(from comm.Origin, b []byte) error {
	p, err := parsePacket(b)
	if err != nil {
		return err
	}
	r.mu.RLock()
	o := r.byName[p.name]
	r.mu.RUnlock()
	if o != nil {
		o.packet(from, &p)
	}
	return nil
}

// Ended loses the links with a peer. A fabric is not closed meanwhile: it is
// removed first.
func (r *registry) Ended(from comm.Origin, cause error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, o := range r.byName {
		if rank, ok := o.rankOf(from.Rank); ok {
			o.hearLost(rank, cause)
			o.notify()
		}
	}
}
