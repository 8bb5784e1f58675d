package objects

import (
	"context"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/objects/content"
)

// CopyRange names the bytes of one copy between objects.
type CopyRange struct {
	Dst    *File
	DstOff uint64
	Src    *File
	SrcOff uint64
	N      uint64
}

// CopyRange copies bytes between two objects, on any devices, and returns how many it
// copied. It stops at the source's end, and stops short without an error if the context
// ends after some bytes were copied. Overlapping ranges of one object are ErrInvalid.
func (s *Store) CopyRange(ctx context.Context, r CopyRange) (uint64, error) {
	end, err := r.Src.obj.end()
	if err != nil || r.SrcOff >= end {
		return 0, err
	}
	r.N = min(r.N, end-r.SrcOff)
	if r.DstOff > maxSize || r.N > maxSize-r.DstOff {
		return 0, fmt.Errorf("copy %d bytes to offset %d: %w", r.N, r.DstOff, ErrTooLarge)
	}
	if r.Src.obj == r.Dst.obj && r.SrcOff < r.DstOff+r.N && r.DstOff < r.SrcOff+r.N {
		return 0, fmt.Errorf("copy %d bytes from offset %d to overlapping offset %d of the same object: %w", r.N, r.SrcOff, r.DstOff, ErrInvalid)
	}
	dst := r.Dst.obj
	var done uint64
	err = dst.change(ctx, func() error {
		return content.Walk(ctx, r.Src.obj.looker(ctx, true), r.SrcOff, r.N, func(at content.Piece) (err error) {
			var n uint64
			n, err = dst.receive(ctx, r.DstOff+at.Off-r.SrcOff, at)
			done += n
			return err
		})
	})
	r.Src.obj.accessed(time.Now())
	if done > 0 && stopped(err) {
		err = nil
	}
	if err != nil {
		return done, fmt.Errorf("copy object %d to object %d: %w", r.Src.obj.ino, dst.ino, err)
	}
	return done, nil
}

// receive writes a piece of another object at off; a hole stays a hole. The caller has
// the lane.
func (o *object) receive(ctx context.Context, off uint64, at content.Piece) (uint64, error) {
	if !at.Hole {
		n, _, err := o.put(ctx, off, at.Span, nil)
		return n, err
	}
	if err := o.notOffered(); err != nil {
		return 0, err
	}
	body := o.content()
	if err := body.Clear(ctx, off, at.N, isBound(body)); err != nil {
		return 0, err
	}
	if err := o.extend(ctx, off+at.N); err != nil {
		return 0, err
	}
	return at.N, o.noteSize(ctx)
}

// duplicate copies the bytes of an object into another content.
func (o *object) duplicate(ctx context.Context, to content.Content) error {
	size, err := o.end()
	if err != nil {
		return err
	}
	err = content.Walk(ctx, o.looker(ctx, true), 0, size, func(at content.Piece) error {
		if at.Hole {
			return nil
		}
		_, path, failure := to.Write(ctx, at.Off, at.Span)
		if path != "" {
			o.mu.Lock()
			o.path = path
			o.mu.Unlock()
		}
		return failure
	})
	if err != nil || to.Backing() == nil {
		return err
	}
	return to.Cut(ctx, size)
}
