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
	s := &sharedBuffers{maps: maps, bytes: make([][]byte, len(o.links))}
	if held {
		s.held = []*region.Buffer{b}
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
	for _, r := range o.local {
		if r == o.me || !can {
			continue
		}
		d, serr := o.c.Share(ctx, o.worlds[r], b, wire.Readable|wire.Writable)
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
				_ = o.c.Revoke(ctx, o.worlds[r], key)
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
	failed, err := o.agree(ctx, can && o.mapEach(ctx, got, maps))
	return maps, err == nil && failed == nil, err
}

// agree tells the other ranks whether this one has succeeded, and returns the ranks that have
// not.
func (o *over) agree(ctx context.Context, ok bool) (failed []plan.Rank, err error) {
	verdict := []byte{0}
	if ok {
		verdict[0] = 1
	}
	got, err := o.rendezvous(ctx, func(plan.Rank) []byte { return verdict })
	for r, p := range got {
		if len(p) != 1 || p[0] != 1 {
			failed = append(failed, plan.Rank(r))
		}
	}
	return failed, err
}

// mapEach maps the buffers that the ranks of the host offer, and reports whether it could
// map all.
func (o *over) mapEach(ctx context.Context, got [][]byte, maps []window.Mapping) bool {
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
		if maps[r], err = o.c.Map(ctx, o.worlds[r], d); err != nil {
			return false
		}
	}
	return true
}

// sharedBuffers is a Shared: buffers of ranks, which are held or mapped.
type sharedBuffers struct {
	mu sync.Mutex
	// bytes is indexed by rank; nil for ranks of other hosts.
	// +checklocks:mu
	bytes [][]byte
	// +checklocks:mu
	held []*region.Buffer
	// +checklocks:mu
	maps []window.Mapping
}

// Bytes returns the buffer of a rank.
func (s *sharedBuffers) Bytes(of plan.Rank) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes[of]
}

// Close releases the buffers.
func (s *sharedBuffers) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := closeMaps(s.maps)
	for _, b := range s.held {
		b.Drop()
	}
	clear(s.bytes)
	s.maps, s.held = nil, nil
	return err
}

func closeMaps(maps []window.Mapping) error {
	var errs []error
	for _, m := range maps {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
