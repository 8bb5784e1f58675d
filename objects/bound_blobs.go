package objects

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// blobSource records the blobs that bound content is made of.
type blobSource struct {
	// holder is nil while the holder of an earlier run, or what continues it, is awaited. It is set after
	// blobs and regions.
	holder atomic.Pointer[Holder]
	blobs  []Blob
	tier   *content.Tier
	// users are those of the regions of the blobs, without duplicates. They stay where they are once
	// they have joined.
	users []regionUser
	// blob and user are the memory of both lists if they have one element, which most have.
	blob [1]Blob
	user [1]regionUser
	// body is the content, ino the inode that it is for, and ended is called when a region ends.
	body  content.Bound
	ino   Ino
	ended endOfMemory
}

// endOfMemory handles the end of memory that an object is made of.
type endOfMemory func(ctx context.Context, ino Ino, b *content.Bound)

// maxBlobs bounds the total number of blobs that a holder has set and published: each
// takes some 150 bytes of memory of this process.
const maxBlobs = 1 << 20

// sourceOf returns the blobs that content is made of; nil for content not made of
// blobs.
func sourceOf(b *content.Bound) *blobSource {
	m, _ := b.Source.(*blobSource)
	return m
}

// belongsTo reports whether the blobs are memory of a holder.
func (m *blobSource) belongsTo(h *Holder) bool { return m != nil && m.holder.Load() == h }

// checkMadeOf fails unless the content is made of exactly these blobs of a holder.
//
// Errors: metadata.ErrExist for content that is not the holder's; ErrInconsistent.
func (o *object) checkMadeOf(h *Holder, blobs []Blob) error {
	body, bound := o.content().(*content.Bound)
	switch {
	case !bound || !sourceOf(body).belongsTo(h):
		return metadata.ErrExist
	case !slices.Equal(sourceOf(body).blobs, blobs):
		return ErrInconsistent
	}
	return nil
}

// blobContent makes content of a holder's blobs, which must all be on one device, and
// returns that too. The content is usable at once; attend makes its end known.
//
// Errors: ErrInvalid for blobs that are not the holder's memory, or are on several
// devices; ErrUnsupported for those of a file; ErrLost if the memory has ended;
// devices.ErrOutOfMemory if the holder has too many.
func (bs *bindings) blobContent(h *Holder, blobs []Blob) (*content.Bound, *content.Tier, error) {
	if err := checkBlobList(h, blobs); err != nil {
		return nil, nil, err
	}
	if has := h.blobs.Load(); has+int64(len(blobs)) > maxBlobs {
		bs.refusedBlobs.Add(1)
		return nil, nil, fmt.Errorf("the keys of this session consist of %d blobs, the maximum is %d; remove some keys: %w", has, maxBlobs, devices.ErrOutOfMemory)
	}
	made := &blobSource{tier: blobs[0].Region.tier}
	made.holder.Store(h)
	made.blobs, made.users = append(made.blob[:0], blobs...), made.user[:0]
	b := &made.body
	b.Init(bs.engine, devices.Name(made.tier.Name), bs.table.warner)
	b.Source = made
	for i := range blobs {
		r := blobs[i].Region
		if r.body == nil {
			return nil, nil, fmt.Errorf("blob %d is part of a file: %w", i, ErrUnsupported)
		}
		if r.body.HasEnded() {
			return nil, nil, fmt.Errorf("the memory of blob %d no longer exists: %w", i, ErrLost)
		}
		if b.AddPart(r.body, blobs[i].Off, blobs[i].Len) {
			made.users = append(made.users, regionUser{region: r, of: made})
		}
	}
	return b, made.tier, nil
}

// checkBlobList checks that blobs are a holder's, inside their regions, and all on one
// device.
func checkBlobList(h *Holder, blobs []Blob) error {
	if _, err := checkBlobRanges(blobs); err != nil {
		return err
	}
	first := blobs[0].Region.tier
	for i := range blobs {
		switch r := blobs[i].Region; {
		case r.holder != h:
			return fmt.Errorf("blob %d is not memory of this session: %w", i, ErrInvalid)
		case r.tier != first:
			return fmt.Errorf("blob %d is on %s, but blob 0 is on %s: %w", i, r.tier.Name, first.Name, ErrInvalid)
		}
	}
	return nil
}

// attend has fn called, in the background, when a region ends that the content is made of: at
// once if one has ended already, and possibly more than once. Call it when the records
// know the content.
func (m *blobSource) attend(ino Ino, fn endOfMemory) {
	m.ino, m.ended = ino, fn
	m.holder.Load().blobs.Add(int64(len(m.blobs)))
	for i := range m.users {
		m.users[i].join()
	}
	m.body.SetCancel(m)
}

// tell reports the end of a region.
func (m *blobSource) tell(ctx context.Context) { m.ended(ctx, m.ino, &m.body) }

// Cancel undoes attend.
func (m *blobSource) Cancel() {
	h := m.holder.Load()
	if h == nil {
		return
	}
	h.blobs.Add(-int64(len(m.blobs)))
	for i := range m.users {
		m.users[i].part()
	}
}

// adoptBound puts an object of bound content into the table, where it stays. A new
// object is put there before its record is written, so that its content is found as
// soon as the record is; dropBound removes it again.
func (tb *table) adoptBound(ino Ino, t *content.Tier, b *content.Bound, f facts) *object {
	made := &struct {
		object object
		entry  entry
	}{object: object{table: tb, ino: ino, tier: t, body: b, facts: f}}
	o := &made.object
	o.foreign.Store(true)
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[ino]
	if e == nil {
		e = &made.entry
		sh.putLocked(ino, e)
	}
	e.obj = o
	return o
}

// dropBound removes an object whose record was not written from the table.
func (tb *table) dropBound(ino Ino) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.entries[ino]; e != nil && e.pins == 0 {
		e.obj = nil
		sh.sweepLocked(ino, e)
	}
}
