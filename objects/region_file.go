package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/transport"
)

// RegisterFile registers the content of a regular file, with its present length. The
// user must be allowed to read and write it, which the region does as a handle would;
// it does not keep the file open between transfers.
//
// Errors: ErrForbidden, also for a file in publish/; ErrInvalid if it is not a regular
// file, or is empty; ErrLost; ErrClosed.
func (h *Holder) RegisterFile(ctx context.Context, ino Ino) (*Region, error) {
	a, err := h.store.attrs.get(ctx, ino)
	if err != nil {
		return nil, fmt.Errorf("register a file: %w", err)
	}
	switch {
	case !a.IsRegular():
		err = fmt.Errorf("inode %d has mode %o and is not a regular file: %w", ino, a.Mode, ErrInvalid)
	case !h.who.May(&a.Inode, PermRead|PermWrite):
		err = fmt.Errorf("user %d has no permission to read and write file %d: %w", h.who.UID, ino, ErrForbidden)
	case a.State == StateLost:
		err = fmt.Errorf("file %d: %w", ino, ErrLost)
	case a.Size == 0:
		err = fmt.Errorf("file %d is empty: %w", ino, ErrInvalid)
	default:
		err = notPublished(a.Inode)
	}
	if err != nil {
		return nil, fmt.Errorf("register a file: %w", err)
	}
	t, err := h.store.tiers.named(a.Device)
	if err != nil {
		return nil, err
	}
	r := h.newRegion(t, a.Size)
	r.ino = ino
	return r, h.add(r)
}

// notPublished fails for a file in publish/, which only its receiver may read, and
// nothing may write.
func notPublished(in metadata.Inode) error {
	if in.Parent == metadata.PublishIno {
		return fmt.Errorf("file %d is published: %w", in.Ino, ErrForbidden)
	}
	return nil
}

// open opens the file for one transfer. While it is open, it can't be published.
//
// Errors: ErrLost for a file that was removed: with ErrNotExist, callers would wait for
// a key. ErrForbidden.
func (r *Region) open(ctx context.Context) (*File, error) {
	f, err := r.holder.store.OpenFile(ctx, r.ino)
	if errors.Is(err, metadata.ErrNotExist) {
		return nil, r.isGone()
	}
	if err != nil {
		return nil, err
	}
	in, err := r.holder.store.meta.Get(ctx, r.ino)
	switch {
	case errors.Is(err, metadata.ErrNotExist):
		err = r.isGone()
	case err == nil:
		err = notPublished(in)
	}
	if err != nil {
		f.Abandon(ctx)
		return nil, fmt.Errorf("registered file: %w", err)
	}
	return f, nil
}

func (r *Region) isGone() error {
	return fmt.Errorf("registered file %d no longer exists: %w", r.ino, ErrLost)
}

func (r *Region) findFile(ctx context.Context, off, n uint64) (content.Range, error) {
	f, err := r.open(ctx)
	if err != nil {
		return content.Range{}, err
	}
	seen, err := f.obj.look(ctx, off, n, true)
	if err == nil && seen.N < n {
		seen.Release()
		err = r.cutTo(off + seen.N)
	}
	if err != nil {
		f.Abandon(ctx)
		return content.Range{}, err
	}
	seen.Then(func() { f.Abandon(ctx) })
	return seen, nil
}

func (r *Region) cutTo(size uint64) error {
	return fmt.Errorf("registered file %d of %d bytes was truncated to %d: %w", r.ino, r.size, size, devices.ErrRange)
}

func (r *Region) writeFile(ctx context.Context, off uint64, src transport.Span) error {
	f, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer f.Abandon(ctx)
	o := f.obj
	err = o.change(ctx, func() error {
		size, failure := o.end()
		if failure == nil && off+uint64(src.Len()) > size {
			failure = r.cutTo(size)
		}
		if failure == nil {
			_, _, failure = o.put(ctx, off, src, r.holder.store.attrs)
		}
		return failure
	})
	// The kernel may have cached pages of the old content.
	r.holder.store.changes.tell(r.ino, true)
	return err
}
