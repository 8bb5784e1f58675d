package objects

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/transport"
)

// HoldLane prevents changes of the content until release.
func (f *File) HoldLane(ctx context.Context) (release func(), err error) {
	return f.obj.lane.Leave, f.obj.lane.Enter(ctx)
}

// Leaves sets whether bound content is about to be removed.
func (f *File) Leaves(now bool) {
	if b, ok := f.obj.content().(*content.Bound); ok {
		b.SetLeaving(now)
	}
}

// Users counts the contents that are made of the region.
func (r *Region) Users() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for u := r.users; u != nil; u = u.next {
		n++
	}
	return n
}

// Find checks what find says of a range.
func (r *Region) Find(ctx context.Context, off, n uint64) error {
	seen, err := r.find(ctx, off, n)
	if err != nil {
		return err
	}
	defer seen.Release()
	end := off
	for _, at := range seen.Pieces() {
		if at.Off != end {
			return fmt.Errorf("a piece at %d, want it at %d", at.Off, end)
		}
		end += at.N
	}
	if end != off+n {
		return fmt.Errorf("the pieces end at %d, want %d", end, off+n)
	}
	return nil
}

// Write is write of bytes.
func (r *Region) Write(ctx context.Context, off uint64, p []byte) error {
	return r.write(ctx, off, transport.HostSpan(p))
}

// Attend makes content of blobs. The returned function calls attend.
func (h *Holder) Attend(blobs []Blob, fn func()) (begin func(), err error) {
	b, _, err := h.store.bindings.blobContent(h, blobs)
	return func() { sourceOf(b).attend(0, func(context.Context, Ino, *content.Bound) { fn() }) }, err
}

// Loaded counts the objects in memory.
func (s *Store) Loaded() int { return len(s.table.loaded(func(*entry) bool { return true })) }

// Holders counts the holders that have not ended.
func (s *Store) Holders() int {
	n := 0
	for range s.holders.Range {
		n++
	}
	return n
}

// MaxBlobs is the bound of a holder's blobs.
const MaxBlobs = maxBlobs

// Blobs counts the blobs.
func (h *Holder) Blobs() int64 { return h.blobs.Load() }
