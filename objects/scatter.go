package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/transport"
)

// Scatter copies a key's bytes into blobs: the i-th blob receives bytes from Offset on
// of the source's i-th blob. The source is pinned until Scatter returns, so a removal
// of the key does not affect the copy. After an error the blobs hold unspecified bytes.
//
// Errors: metadata.ErrNotExist; *ShapeError; ErrLost; ErrForbidden for an object that
// the holder's user may not read; ErrInvalid for blobs that are not inside their
// regions, and for a Replica of less than the whole object; io.ErrUnexpectedEOF for a
// source that is truncated meanwhile.
func (h *Holder) Scatter(ctx context.Context, sc Scatter) error {
	_, err := checkBlobRanges(sc.Blobs)
	if err == nil {
		err = h.begin()
	}
	if err != nil {
		return fmt.Errorf("key %q: %w", sc.Key, err)
	}
	p, err := h.pinKey(ctx, sc)
	o, in := p.obj, p.tensor
	if err != nil {
		return fmt.Errorf("read key %q: %w", sc.Key, err)
	}
	defer h.store.table.unpin(ctx, o, pinUse)
	before := o.version.Load()
	if in != nil {
		err = h.scatterTensor(ctx, o, *in, sc)
	} else {
		err = o.scatter(ctx, sc, p.blobs)
	}
	if err != nil {
		return fmt.Errorf("read key %q: %w", sc.Key, err)
	}
	if !sc.Replica || in != nil {
		return nil
	}
	if err = h.replicate(ctx, o, before, sc.Blobs); err != nil {
		return fmt.Errorf("make a replica of key %q: %w", sc.Key, err)
	}
	return nil
}

// pinned is a pinned object, and its user.hmc.blobs. tensor is not nil if the key that it was found by
// names a tensor of it.
type pinned struct {
	obj    *object
	blobs  string
	tensor *carrier
}

// pinKey pins the object that a key names, if the user has the permissions for sc.
func (h *Holder) pinKey(ctx context.Context, sc Scatter) (p pinned, err error) {
	for {
		named, blobs, known := h.store.index.known(sc.Key)
		p = pinned{blobs: blobs}
		if !known {
			found, failure := h.store.index.findBlobs(ctx, sc.Key)
			if failure != nil {
				return p, failure
			}
			if named, p.blobs = &found.Inode, found.blobs; found.tensor != "" {
				p.tensor = &found
			}
		}
		if err = h.mayScatter(ctx, named, sc.Replica && p.tensor == nil); err != nil {
			return p, err
		}
		p.obj, err = h.store.table.pin(ctx, named.Ino, pinUse)
		if !errors.Is(err, metadata.ErrNotExist) {
			return p, err
		}
		// It was replaced or removed since it was found; look the key up again.
	}
}

// mayScatter checks that the holder's user has the permissions for a Scatter. A replica becomes a
// source of the bytes that others read.
func (h *Holder) mayScatter(ctx context.Context, in *metadata.Inode, replica bool) error {
	if err := h.store.access.mayUse(ctx, h.who, in, PermRead); err != nil {
		return err
	}
	if replica && !h.who.May(in, PermWrite) {
		return fmt.Errorf("a replica requires write permission: %w", ErrForbidden)
	}
	return nil
}

// scatter fills blobs with the object's bytes.
func (o *object) scatter(ctx context.Context, sc Scatter, noted string) error {
	size, err := o.end()
	if err != nil {
		return err
	}
	if noted == "" {
		return o.scatterFrom(ctx, sc, 0, []uint64{size})
	}
	want, err := sizesIn(noted, size)
	if err != nil {
		return err
	}
	return o.scatterFrom(ctx, sc, 0, want)
}

// scatterFrom fills blobs with those of the object, which begin at off and have the sizes
// want.
func (o *object) scatterFrom(ctx context.Context, sc Scatter, off uint64, want []uint64) (err error) {
	if err = sc.fits(want); err != nil {
		return err
	}
	if len(sc.Blobs) == 1 {
		b := &sc.Blobs[0]
		err = o.scatterPart(ctx, stretch{region: b.Region, at: b.Off, off: off + sc.Offset, n: b.Len}, sc.Burst.begun())
	} else {
		err = o.scatterParts(ctx, sc, off, want)
	}
	o.accessed(o.table.engine.Recent())
	return err
}

// scatterParts is scatterFrom for several blobs.
func (o *object) scatterParts(ctx context.Context, sc Scatter, off uint64, want []uint64) error {
	parts, workers := sc.parts(want)
	for i := range parts {
		parts[i].off += off
	}
	return Parallel(ctx, len(parts), workers, func(ctx context.Context, i int) error {
		return o.scatterPart(ctx, parts[i], nil)
	})
}

// fits compares the blobs to be filled with those of the source.
func (sc *Scatter) fits(want []uint64) error {
	ok := len(want) == len(sc.Blobs)
	for i := 0; ok && i < len(want); i++ {
		n := sc.Blobs[i].Len
		ok = sc.Offset <= want[i] && n <= want[i]-sc.Offset && (!sc.Exact || n == want[i])
	}
	if !ok {
		return &ShapeError{Want: slices.Clone(want), Got: sizesOf(sc.Blobs), Offset: sc.Offset}
	}
	if sc.Replica && (sc.Offset != 0 || !slices.Equal(want, sizesOf(sc.Blobs))) {
		return fmt.Errorf("a replica must have all bytes of the object: %w", ErrInvalid)
	}
	return nil
}

// scatterPart copies a stretch of the object into its region. It is copyAll without functions: most calls copy
// few bytes of many objects, and a piece that is passed to a function is copied, too. burst is nil if the copy is made for itself.
func (o *object) scatterPart(ctx context.Context, part stretch, burst *transport.Burst) error {
	if copied, err := o.scatterBound(ctx, part, burst); copied || err != nil {
		return err
	}
	for done := uint64(0); done < part.n; {
		if err := ctx.Err(); err != nil {
			return err
		}
		seen, err := o.look(ctx, part.off+done, min(part.n-done, content.MaxPiece), false)
		if err != nil {
			return err
		}
		if seen.N == 0 {
			return fmt.Errorf("the source was truncated by %d bytes in the meantime: %w", part.n-done, io.ErrUnexpectedEOF)
		}
		for i := range seen.Len() {
			at := seen.At(i)
			to := part.at + at.Off - part.off
			if at.Hole {
				err = part.region.zero(ctx, to, at.N, o.table.hole)
			} else {
				err = part.region.write(ctx, to, at.Span)
			}
			if err != nil {
				seen.Release()
				return err
			}
		}
		done += seen.N
		seen.Release()
	}
	return nil
}

// scatterBound is scatterPart for memory of other processes on both sides, which needs no look: its length
// never changes. copied is false if it has done nothing.
func (o *object) scatterBound(ctx context.Context, part stretch, burst *transport.Burst) (copied bool, err error) {
	if err = ctx.Err(); err != nil || part.region.body == nil {
		return false, err
	}
	end, body, err := o.extent()
	if b, ours := body.(*content.Bound); err == nil && ours && part.off <= end && part.n <= end-part.off {
		return b.CopyTo(part.off, part.n, part.region.body, part.at, burst) //nolint:contextcheck // a piece that has begun is finished
	}
	return false, nil
}

// zero writes n zeros at off, from the zeros in hole.
func (r *Region) zero(ctx context.Context, off, n uint64, hole []byte) error {
	for n > 0 {
		k := min(n, uint64(len(hole)))
		if err := r.write(ctx, off, transport.HostSpan(hole[:k])); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}
