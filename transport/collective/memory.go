package collective

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// memory is a view that is held for a call.
type memory struct {
	view domain.View
	held *region.Buffer
	// bytes is the view itself, if the host can access it; otherwise staged is set.
	bytes  []byte
	staged bool
	// release unmaps device memory; nil if none is mapped.
	release func()
}

// hold keeps the memory of a view from being freed until drop.
func (m *memory) hold(v domain.View) error {
	*m = memory{view: v}
	b := v.Buffer()
	if b == nil || v.Size() == 0 {
		return nil
	}
	if err := b.Hold(); err != nil {
		return err
	}
	m.held = b
	return nil
}

// show finds the bytes of a held view.
func (m *memory) show(ctx context.Context, access devices.Access) error {
	if m.held == nil {
		return nil
	}
	n := m.view.Size()
	if m.bytes = m.held.Host(m.view.Offset(), n); m.bytes != nil {
		return nil
	}
	view, ok, err := m.held.View(ctx, m.view.Offset(), n, access)
	switch {
	case err != nil:
		return fmt.Errorf("map memory of %s: %w", m.held.Device(), err)
	case ok:
		m.bytes, m.release = view.Bytes, view.Release
	default:
		m.staged = true
	}
	return nil
}

// plain reports that a view is host memory, or empty.
func (m *memory) plain() bool { return m.held == nil || m.held.Host(0, 0) != nil }

// again holds a view that was plain in the previous call.
func (m *memory) again(count uint64, v domain.View) error {
	if count == 0 {
		v = domain.View{}
	}
	err := m.hold(v)
	if err == nil && m.held != nil {
		m.bytes = m.held.Host(v.Offset(), v.Size())
	}
	return err
}

// drop undoes hold and show.
func (m *memory) drop() {
	if m.release != nil {
		m.release()
	}
	if m.held != nil {
		m.held.Drop()
	}
	*m = memory{}
}

// place is the beginning of a view: an address in a space. Different spaces do not overlap.
type place struct {
	host bool
	mem  *devices.Memory
	buf  *region.Buffer
	at   uint64
}

// placeOf returns the place of a view.
//
// Preconditions: its buffer is held.
func placeOf(v domain.View) place {
	b := v.Buffer()
	if p := b.Host(v.Offset(), v.Size()); p != nil {
		return place{host: true, at: address(p)}
	}
	if s := b.Source().Device; s.Mem != nil {
		return place{mem: s.Mem, at: uint64(s.Off) + uint64(v.Offset())}
	}
	return place{buf: b, at: uint64(v.Offset())}
}

// inPlace reports whether a call is in place: see Call.
//
// Errors: ErrArgument for views that overlap in any other way.
func inPlace(t *plan.Task, rank plan.Rank, source, result domain.View) (bool, error) {
	if source.Size() == 0 || result.Size() == 0 {
		return false, nil
	}
	s, r := placeOf(source), placeOf(result)
	first, second := s.at, r.at
	s.at, r.at = 0, 0
	if s != r || first >= second+uint64(result.Size()) || second >= first+uint64(source.Size()) {
		return false, nil
	}
	part := plan.Part(t.Count, int(rank), t.Ranks).Off * t.Type.Size()
	var same bool
	switch t.Kind {
	case plan.AllReduce, plan.Reduce, plan.Broadcast:
		same = first == second
	case plan.ReduceScatter:
		same = first+part == second
	case plan.AllGather:
		same = first == second+part
	case plan.AllToAll, plan.Barrier:
	}
	if !same {
		return false, fmt.Errorf("%w: source and result of %v overlap, but are not in place", ErrArgument, t.Kind)
	}
	return true, nil
}

// readView copies bytes of a view, starting at offset off, to p, whatever memory the view
// is in.
func readView(ctx context.Context, v domain.View, off devices.Offset, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if err := v.Buffer().Load(ctx, transport.HostSpan(p), v.Offset()+off); err != nil {
		return fmt.Errorf("read %d bytes of a source: %w", len(p), err)
	}
	return nil
}

// writeView copies p to a view, starting at offset off.
func writeView(ctx context.Context, v domain.View, off devices.Offset, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if err := v.Buffer().Store(ctx, v.Offset()+off, transport.HostSpan(p)); err != nil {
		return fmt.Errorf("write %d bytes of a result: %w", len(p), err)
	}
	return nil
}
