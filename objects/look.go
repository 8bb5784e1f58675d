package objects

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/objects/content"
)

// look finds the pieces of n bytes at off, as content.Content.Find does, up to the
// object's end. It waits for memory whose owner is expected to show it again.
//
// INVARIANT: the size and the pieces are of one moment. A truncation lowers the size,
// then raises cuts, and only then frees memory; bytes are stored before the size
// includes them. So a reader that finds a hole where a truncation has freed the memory
// also finds that cuts has changed.
func (o *object) look(ctx context.Context, off, n uint64, sparse bool) (content.Range, error) {
	for {
		cuts := o.cuts.Load()
		end, body, err := o.extent()
		if err != nil || off >= end || n == 0 {
			return content.Range{}, err
		}
		if b, bound := body.(*content.Bound); bound {
			err = b.Await(ctx)
		}
		if err != nil {
			return content.Range{}, fmt.Errorf("read object %d: %w", o.ino, err)
		}
		seen, err := body.Find(off, min(n, end-off), sparse)
		if err != nil {
			return content.Range{}, fmt.Errorf("read object %d: %w", o.ino, err)
		}
		if o.cuts.Load() == cuts {
			return seen, nil
		}
		seen.Release()
	}
}

// looker returns look for content.Walk. Copies that keep holes are sparse.
func (o *object) looker(ctx context.Context, sparse bool) func(off, n uint64) (content.Range, error) {
	return func(off, n uint64) (content.Range, error) { return o.look(ctx, off, n, sparse) }
}

// shrink lowers the size to that after a truncation, for look, and returns the old
// size. The caller has the lane.
func (o *object) shrink(size uint64) (was uint64) {
	o.mu.Lock()
	was = o.size
	o.size = min(was, size)
	o.keepLocked()
	o.mu.Unlock()
	o.cuts.Add(1)
	return was
}
