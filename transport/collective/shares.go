package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// shared is one buffer of each rank, all of which all ranks have mapped.
type shared struct {
	// number counts the calls of Share in the group, including failed ones: it is unique,
	// and the same at every rank.
	number uint64
	buffer *region.Buffer
	shared fabric.Shared
	// ranks holds the bytes of each rank's buffer.
	ranks [][]byte
}

// release unmaps a buffer that the group itself has shared, and closes it in the
// background: ranks of this process have it mapped until they release it too, and release
// does not wait for that.
func (s *shared) release(ctx context.Context) error {
	err := s.shared.Close()
	go func() { _ = s.buffer.Close(context.WithoutCancel(ctx)) }()
	return err
}

// shares maps buffers at all ranks of one host, and locates views in buffers that callers
// have shared. It belongs to one group; Group.mu guards it.
type shares struct {
	fabric fabric.Fabric
	watch  *watchdog
	// list holds the buffers that callers have shared, in order; count counts the calls of
	// add.
	list  []*shared
	count uint64
}

// oneHost reports whether all ranks are on one host, and can map memory there.
func oneHost(p fabric.Places) bool {
	nodes := p.Nodes()
	return p.Mapped() && !slices.ContainsFunc(nodes, func(n int) bool { return n != nodes[0] })
}

// share maps one buffer of each rank at all of them. They call it in the same order.
//
// Errors: fabric.ErrUnmapped; those of calm.
func (s *shares) share(ctx context.Context, b *region.Buffer) (*shared, error) {
	fresh := &shared{buffer: b}
	err := s.watch.calm(ctx)
	if err != nil {
		return nil, err
	}
	if fresh.shared, err = s.fabric.Share(ctx, b); err != nil {
		return nil, fmt.Errorf("share %v: %w", b.Size(), err)
	}
	for r := range s.fabric.Size() {
		fresh.ranks = append(fresh.ranks, fresh.shared.Bytes(plan.Rank(r)))
	}
	return fresh, nil
}

// open shares n bytes of the group's own memory. It returns nil if memory can't be mapped.
func (s *shares) open(ctx context.Context, table *region.Table, n devices.Size) (*shared, error) {
	b, err := table.Alloc(n)
	if err != nil {
		return nil, err
	}
	fresh, err := s.share(ctx, b)
	if err == nil {
		return fresh, nil
	}
	err = errors.Join(err, b.Close(context.WithoutCancel(ctx)))
	if errors.Is(err, fabric.ErrUnmapped) {
		return nil, nil //nolint:nilnil // nil means that no memory is mapped
	}
	return nil, err
}

// add shares a caller's buffer: see Group.Share.
func (s *shares) add(ctx context.Context, b *region.Buffer) (mapped bool, err error) {
	if !oneHost(s.fabric) {
		return false, nil
	}
	s.count++
	fresh, err := s.share(ctx, b)
	if errors.Is(err, fabric.ErrUnmapped) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fresh.number = s.count
	s.list = append(s.list, fresh)
	return true, nil
}

// remove undoes add. It ignores a buffer that is not shared.
func (s *shares) remove(b *region.Buffer) error {
	i := slices.IndexFunc(s.list, func(o *shared) bool { return o.buffer == b })
	if i < 0 {
		return nil
	}
	gone := s.list[i]
	s.list = slices.Delete(s.list, i, i+1)
	return gone.shared.Close()
}

// close undoes every add.
func (s *shares) close() error {
	var errs []error
	for _, o := range s.list {
		errs = append(errs, o.shared.Close())
	}
	s.list = nil
	return errors.Join(errs...)
}

// locate encodes the number of the share that contains a view, 0 for none, and the offset in it.
func (s *shares) locate(p []byte, v domain.View) {
	clear(p[:16])
	for _, o := range s.list {
		if off, ok := within(v, o.buffer); ok {
			binary.LittleEndian.PutUint64(p, o.number)
			binary.LittleEndian.PutUint64(p[8:], off)
			return
		}
	}
}

// within returns the offset of a view in a buffer, and whether the buffer contains it.
func within(v domain.View, b *region.Buffer) (uint64, bool) {
	switch {
	case v.Size() == 0:
		return 0, false
	case v.Buffer() == b:
		return uint64(v.Offset()), true
	}
	p, all := v.Buffer().Host(v.Offset(), v.Size()), b.Host(0, b.Size())
	if p == nil || all == nil {
		return 0, false
	}
	at, begin := address(p), address(all)
	return at - begin, at >= begin && at+uint64(len(p)) <= begin+uint64(len(all))
}

// read returns the n bytes that a rank has described. ok is false for memory that is not
// mapped.
func (s *shares) read(of plan.Rank, p []byte, n uint64) (bytes []byte, ok bool, err error) {
	if n == 0 {
		return nil, true, nil
	}
	share, at := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
	if share == 0 {
		return nil, false, nil
	}
	i := slices.IndexFunc(s.list, func(o *shared) bool { return o.number == share })
	if i < 0 {
		return nil, false, fmt.Errorf("%w: rank %d uses its shared memory number %d, in which rank %d has no part", ErrInconsistent, of, share, s.fabric.Rank())
	}
	all := devices.Range{Off: devices.Offset(at), Len: devices.Size(n)}
	whole := s.list[i].ranks[of]
	if !all.Within(devices.Size(len(whole))) {
		return nil, false, fmt.Errorf("%w: rank %d refers to %v of a buffer of %d bytes", ErrInconsistent, of, all, len(whole))
	}
	return whole[at : at+n : at+n], true, nil
}
