package rankserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// sizeOf returns a number as the size of a line, which carries it.
func sizeOf(n uint64) devices.Size { return devices.Size(n) }

// piece is memory that the rank has mapped too.
type piece struct {
	buffer *region.Buffer
	// dropped is set once the rank has released it.
	dropped bool
	// window marks memory of job.Windows, which owns it.
	window bool
}

// memory holds the memory that calls refer to.
type memory struct {
	mu sync.Mutex
	// +checklocks:mu
	last uint64
	// +checklocks:mu
	pieces map[uint64]*piece
	// shared lists the memory that all ranks have mapped, in the same order at each of them.
	// +checklocks:mu
	shared []*piece
}

func newMemory() *memory { return &memory{pieces: map[uint64]*piece{}} }

// add makes memory known, and returns its number and descriptor.
func (m *memory) add(p *piece) (answer, error) {
	f := p.buffer.Source().File
	if f == nil {
		return answer{}, fmt.Errorf("memory of this kernel can't be passed to another process: %w", devices.ErrUnsupported)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	m.pieces[m.last] = p
	return answer{m.last, int(f.Fd())}, nil
}

// view returns the elements that a call refers to.
//
// Errors: devices.ErrRange; frames.ErrFrame for an unknown type.
func (m *memory) view(t elem.Type, r Range) (domain.View, error) {
	if r.Memory == 0 {
		return domain.View{}, nil
	}
	if t.Size() == 0 {
		return domain.View{}, fmt.Errorf("%w: unknown element type %d", frames.ErrFrame, t)
	}
	m.mu.Lock()
	p := m.pieces[r.Memory]
	m.mu.Unlock()
	if p == nil {
		return domain.View{}, fmt.Errorf("there is no memory %d: %w", r.Memory, devices.ErrRange)
	}
	return domain.NewView(p.buffer, r.Offset, t, r.Count)
}

// free forgets memory. What is shared stays until all ranks have dropped it.
func (m *memory) free(ctx context.Context, number uint64) error {
	m.mu.Lock()
	p := m.pieces[number]
	delete(m.pieces, number)
	kept := p == nil || p.window || slices.Contains(m.shared, p)
	if p != nil {
		p.dropped = true
	}
	m.mu.Unlock()
	switch {
	case p == nil:
		return fmt.Errorf("there is no memory %d: %w", number, devices.ErrRange)
	case kept:
		return nil
	}
	return p.buffer.Close(context.WithoutCancel(ctx))
}

// forget removes the number of a buffer that is released elsewhere.
func (m *memory) forget(b *region.Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for number, p := range m.pieces {
		if p.buffer == b {
			delete(m.pieces, number)
		}
	}
}

// close frees everything, after the group.
func (m *memory) close(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.shared)
	for _, p := range m.pieces {
		if !p.window && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	m.pieces, m.shared = map[uint64]*piece{}, nil
	var errs []error
	for _, p := range all {
		errs = append(errs, p.buffer.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}

// allocate allocates memory for this rank alone.
func (s *server) allocate(ctx context.Context, n uint64) (answer, error) {
	b, err := s.job.Table().Alloc(devices.Size(n))
	if err != nil {
		return answer{}, err
	}
	a, err := s.memory.add(&piece{buffer: b})
	if err != nil {
		return answer{}, errors.Join(err, b.Close(context.WithoutCancel(ctx)))
	}
	return a, nil
}

// allocateShared allocates memory at all ranks, and first frees what all of them have dropped.
func (s *server) allocateShared(ctx context.Context, n uint64) (answer, error) {
	b, failed := s.job.Table().Alloc(devices.Size(n))
	m := s.memory
	m.mu.Lock()
	// The first flag says that there is memory, the others what was dropped.
	flags := make([]byte, 1+len(m.shared))
	for i, p := range m.shared {
		flags[1+i] = flag(p.dropped)
	}
	m.mu.Unlock()
	flags[0] = flag(failed == nil)
	err := s.minimum(ctx, flags)
	if err == nil {
		err = s.release(ctx, flags[1:])
	}
	if err == nil && flags[0] == 0 && failed == nil {
		err = fmt.Errorf("another rank has no memory for its part: %w", devices.ErrOutOfMemory)
	}
	if err = errors.Join(failed, err); err == nil {
		_, err = s.group.Share(ctx, b)
	}
	if err != nil && b != nil {
		return answer{}, errors.Join(err, b.Close(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return answer{}, err
	}
	p := &piece{buffer: b}
	m.mu.Lock()
	m.shared = append(m.shared, p)
	m.mu.Unlock()
	return m.add(p)
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// minimum replaces each byte by the minimum of all ranks.
func (s *server) minimum(ctx context.Context, p []byte) error {
	b, err := s.job.Table().Register(p)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close(context.WithoutCancel(ctx)) }() // it only registers p
	v, err := domain.All(b, elem.Uint8)
	if err != nil {
		return err
	}
	return s.group.Do(ctx, &collective.Call{Kind: kindOf(VerbAllReduce), Source: v, Result: v, Op: elem.Min})
}

// release frees shared memory that all ranks have dropped.
func (s *server) release(ctx context.Context, dropped []byte) error {
	m := s.memory
	m.mu.Lock()
	var gone []*piece
	kept := m.shared[:0]
	for i, p := range m.shared {
		if dropped[i] == 1 {
			gone = append(gone, p)
		} else {
			kept = append(kept, p)
		}
	}
	m.shared = kept
	m.mu.Unlock()
	var errs []error
	for _, p := range gone {
		errs = append(errs, s.group.Unshare(p.buffer))
		// Ranks that have not unmapped it yet delay its end.
		s.calls.Go(func() { _ = p.buffer.Close(context.WithoutCancel(ctx)) })
	}
	return errors.Join(errs...)
}
