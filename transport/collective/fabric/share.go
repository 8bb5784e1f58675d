package fabric

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Share maps the buffers of the other ranks of this host.
func (o *over) Share(ctx context.Context, b *region.Buffer) (Shared, error) {
	if !o.gate.Enter() {
		return nil, ErrClosed
	}
	defer o.gate.Leave()
	if !o.mapped {
		return nil, fmt.Errorf("the ranks are connected by sockets and can't map memory: %w", ErrUnmapped)
	}
	ctx, cancel := context.WithTimeout(ctx, o.opts.Timeout)
	defer cancel()
	held := b.Hold() == nil
	can := held && b.Host(0, 0) != nil
	maps, ok, err := o.mapAll(ctx, b, can)
	s := &overShared{maps: maps, bytes: make([][]byte, len(o.links))}
	if held {
		s.own = b
	}
	if err == nil && !ok {
		err = ErrUnmapped
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for r, m := range maps {
		if m != nil {
			s.bytes[r] = m.Bytes()
		}
	}
	s.bytes[o.me] = b.Host(0, b.Size())
	return s, nil
}

// mapAll grants the other ranks of the host the right to map a buffer, and maps theirs. ok
// reports whether all ranks succeeded. The rights are revoked at once: the mappings stay.
func (o *over) mapAll(ctx context.Context, b *region.Buffer, can bool) (maps []window.Mapping, ok bool, err error) {
	maps = make([]window.Mapping, len(o.links))
	offers := make([][]byte, len(o.links))
	keys := make([]wire.Key, len(o.links))
	worlds := o.worlds()
	for _, r := range o.local {
		if r == o.me || !can {
			continue
		}
		d, serr := o.c.Share(ctx, worlds[r], b, wireRights)
		if serr != nil {
			can = false
			continue
		}
		offers[r], keys[r] = d.Append(nil), d.Key
	}
	defer func() {
		for r, key := range keys {
			if key != 0 {
				// If the session has ended, so has the key.
				_ = o.c.Revoke(ctx, worlds[r], key)
			}
		}
	}()
	got, err := o.rendezvous(ctx, func(to plan.Rank) []byte {
		if !can {
			return []byte{0}
		}
		return append([]byte{1}, offers[to]...)
	})
	if err != nil {
		return maps, false, err
	}
	ok = can && o.mapEach(ctx, got, maps)
	verdict := []byte{0}
	if ok {
		verdict[0] = 1
	}
	if got, err = o.rendezvous(ctx, func(plan.Rank) []byte { return verdict }); err != nil {
		return maps, false, err
	}
	for _, p := range got {
		ok = ok && len(p) == 1 && p[0] == 1
	}
	return maps, ok, nil
}

// mapEach maps the buffers that the ranks of the host offer, and reports whether it could
// map all.
func (o *over) mapEach(ctx context.Context, got [][]byte, maps []window.Mapping) bool {
	worlds := o.worlds()
	for r, p := range got {
		if len(p) == 0 || p[0] != 1 {
			return false
		}
		if r == int(o.me) || o.nodes[r] != o.nodes[o.me] {
			continue
		}
		d, err := wire.ParseDescriptor(p[1:])
		if err != nil {
			return false
		}
		if maps[r], err = o.c.Map(ctx, worlds[r], d); err != nil {
			return false
		}
	}
	return true
}

// overShared holds the mapped buffers of the other ranks, and holds our own.
type overShared struct {
	mu sync.Mutex
	// +checklocks:mu
	bytes [][]byte
	// +checklocks:mu
	maps []window.Mapping
	// +checklocks:mu
	own *region.Buffer
}

// Bytes returns the buffer of a rank; nil for ranks of other hosts.
func (s *overShared) Bytes(of plan.Rank) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes[of]
}

// Close unmaps the other ranks' buffers.
func (s *overShared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, m := range s.maps {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	if s.own != nil {
		s.own.Drop()
	}
	clear(s.bytes)
	s.maps, s.own = nil, nil
	return errors.Join(errs...)
}
