package collective

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/region"
)

// scratch is a group's scratch memory for plans, which grows as needed. Group.mu guards it.
type scratch struct {
	table  *region.Table
	buffer *region.Buffer
}

// bytes returns n bytes of it. Their content is unspecified.
func (s *scratch) bytes(ctx context.Context, n uint64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if s.buffer == nil || uint64(s.buffer.Size()) < n {
		size := devices.Size(1) << bits.Len64(max(n, 1<<16)-1)
		fresh, err := s.table.Alloc(size)
		if err != nil {
			return nil, fmt.Errorf("allocate scratch memory for a collective: %w", err)
		}
		if err = s.close(ctx); err != nil {
			return nil, errors.Join(err, fresh.Close(ctx))
		}
		s.buffer = fresh
	}
	return s.buffer.Host(0, devices.Size(n)), nil
}

// trim frees the memory if it exceeds the size that a group may keep.
func (s *scratch) trim(ctx context.Context, keep devices.Size) {
	if s.buffer != nil && s.buffer.Size() > keep {
		// Unmapping memory that was mapped before does not fail.
		_ = s.close(ctx)
	}
}

// close frees the memory. It has no other users, so close does not wait.
func (s *scratch) close(ctx context.Context) error {
	b := s.buffer
	if b == nil {
		return nil
	}
	s.buffer = nil
	return b.Close(context.WithoutCancel(ctx))
}
