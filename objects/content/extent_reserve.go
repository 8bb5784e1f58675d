package content

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
)

// Reserve implements Content. It allocates memory for all of a range, or on error for none
// of it: memory that a failed call kept would be missing elsewhere without a trace.
func (x *Extents) Reserve(ctx context.Context, off, n uint64) error {
	if err := x.CheckEpoch(); err != nil {
		return err
	}
	end := off + n
	ahead := x.ahead
	taken, err := x.fill(ctx, x.floor(off), end)
	if err == nil {
		x.settleAhead(end)
		return nil
	}
	for _, r := range taken {
		x.drop(uint64(r.Off), uint64(r.End()), false)
	}
	x.ahead = ahead
	return x.full(err, x.missing(x.floor(off), x.ceil(end)))
}

// fill allocates memory from at, a page boundary, up to end at least. It returns the ranges
// that it allocated, also with an error.
func (x *Extents) fill(ctx context.Context, at, end uint64) (taken []devices.Range, err error) {
	for at < end {
		if err = ctx.Err(); err != nil {
			return taken, err
		}
		e, ok := x.at(at)
		if !ok {
			if e, err = x.grow(ctx, at, end); err != nil {
				return taken, err
			}
			taken = append(taken, rangeOf(at, e.end()))
		}
		at = e.end()
	}
	return taken, nil
}

// missing returns the number of bytes of [off, end), both page boundaries, that have no
// memory.
func (x *Extents) missing(off, end uint64) uint64 {
	n := end - off
	x.from(off, end, func(e extent) bool {
		n -= min(end, e.end()) - max(off, e.off)
		return true
	})
	return n
}

// full replaces the out-of-memory error of the arena, which names the last piece, by one
// that names the bytes that the caller asked for and those that are free now. Other
// errors joined to it, such as that of freeing an empty slab, stay.
func (x *Extents) full(err error, asked uint64) error {
	oom, ok := errors.AsType[*devices.OutOfMemoryError](err)
	if !ok {
		return err
	}
	told := &devices.OutOfMemoryError{Device: oom.Device, Asked: devices.Size(asked), Free: oom.Free}
	if u, usageErr := x.tier.Usage(); usageErr == nil {
		told.Free = u.Free
	}
	all := []error{told}
	if several, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		for _, other := range several.Unwrap() {
			if !errors.Is(other, devices.ErrOutOfMemory) {
				all = append(all, other)
			}
		}
	}
	return errors.Join(all...)
}

// settleAhead keeps the memory of a reservation and of data, and frees what grow allocated
// beyond.
func (x *Extents) settleAhead(end uint64) {
	if x.ahead == 0 {
		return
	}
	x.tree.Reverse(func(_ uint64, e extent) bool {
		if e.written > 0 {
			end = max(end, e.off+e.written)
		}
		return e.written == 0
	})
	x.dropTail(max(x.ahead, x.ceil(end)))
	x.ahead = 0
}
