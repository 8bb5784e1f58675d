package objects

import (
	"context"
	"fmt"
)

// CopyRange names the bytes of one copy between objects.
type CopyRange struct {
	Dst    *File
	DstOff uint64
	Src    *File
	SrcOff uint64
	N      uint64
}

// CopyRange copies n bytes between two objects, on whatever devices they
// are, and returns how many it copied. It stops at the source's end, and
// short, without an error, when the context ends after some were moved.
// Ranges of one object that overlap are ErrInvalid.
func (s *Store) CopyRange(ctx context.Context, r CopyRange) (uint64, error) {
	end, err := r.Src.obj.end()
	if err != nil || r.SrcOff >= end {
		return 0, err
	}
	r.N = min(r.N, end-r.SrcOff)
	if r.DstOff > maxSize || r.N > maxSize-r.DstOff {
		return 0, fmt.Errorf("copy %d bytes to %d: %w", r.N, r.DstOff, ErrTooLarge)
	}
	if r.Src.obj == r.Dst.obj && r.SrcOff < r.DstOff+r.N && r.DstOff < r.SrcOff+r.N {
		return 0, fmt.Errorf("copy %d bytes from %d to %d of one object: %w", r.N, r.SrcOff, r.DstOff, ErrInvalid)
	}
	dst := r.Dst.obj
	var done uint64
	err = dst.change(ctx, func() error {
		return copyContent(ctx, r.Src.obj.lookSparse, r.SrcOff, r.N, func(at piece) (err error) {
			var n uint64
			n, err = dst.receive(ctx, r.DstOff+at.off-r.SrcOff, at)
			done += n
			return err
		})
	})
	r.Src.obj.accessed()
	if done > 0 && stopped(err) {
		err = nil
	}
	if err != nil {
		return done, fmt.Errorf("copy object %d to object %d: %w", r.Src.obj.ino, dst.ino, err)
	}
	return done, nil
}

// receive writes a piece of another object at off; a hole stays one. The
// caller has the lane.
func (o *object) receive(ctx context.Context, off uint64, at piece) (uint64, error) {
	if !at.hole {
		n, _, err := o.put(ctx, off, at.span, nil)
		return n, err
	}
	if err := o.notOffered(); err != nil {
		return 0, err
	}
	body := o.content()
	_, theirs := body.(*bound)
	if err := body.clear(ctx, off, at.n, theirs); err != nil {
		return 0, err
	}
	if err := o.extend(ctx, off+at.n); err != nil {
		return 0, err
	}
	return at.n, o.noteSize(ctx)
}

// duplicate makes a second content with the bytes of an object, on a tier.
func (o *object) duplicate(ctx context.Context, to content) error {
	size, err := o.end()
	if err != nil {
		return err
	}
	err = copyContent(ctx, o.lookSparse, 0, size, func(at piece) error {
		if at.hole {
			return nil
		}
		_, path, failure := to.write(ctx, at.off, at.span)
		if path != "" {
			o.mu.Lock()
			o.path = path
			o.mu.Unlock()
		}
		return failure
	})
	if err != nil || to.backing() == nil {
		return err
	}
	return to.cut(ctx, size)
}
