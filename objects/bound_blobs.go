package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
)

// boundOf says what a bound content is made of.
type boundOf struct {
	holder *Holder
	blobs  []Blob
	tier   *tier
	// regions are those of the blobs, once each.
	regions []*Region
}

// maxBlobs bounds the blobs of what a holder has set and published at
// most: each takes some 150 bytes of this process.
const maxBlobs = 1 << 20

// isOf says whether content is of a holder's blobs, just these.
func (b *bound) isOf(h *Holder, blobs []Blob) bool {
	return b.belongsTo(h) && slices.Equal(b.made.blobs, blobs)
}

// blobContent makes content of a holder's blobs, all on one device, which it
// returns too. It is content from the start; attend tells of its end.
//
// Errors: ErrInvalid for blobs that are none of the holder's memory, or of
// several devices; ErrUnsupported for those of a file; ErrLost when the memory
// has ended; devices.ErrOutOfMemory when the holder has too many.
func (bs *bindings) blobContent(h *Holder, blobs []Blob) (*bound, *tier, error) {
	if err := checkBlobList(h, blobs); err != nil {
		return nil, nil, err
	}
	if has := h.blobs.Load(); has+int64(len(blobs)) > maxBlobs {
		bs.refusedBlobs.Add(1)
		return nil, nil, fmt.Errorf("keys of this user are made of %d blobs, at most %d: remove some: %w", has, maxBlobs, devices.ErrOutOfMemory)
	}
	made := &boundOf{holder: h, blobs: slices.Clone(blobs), tier: blobs[0].Region.tier}
	b := &bound{engine: bs.engine, name: devices.Name(made.tier.name), logf: bs.table.warn, made: made}
	for i := range blobs {
		r := blobs[i].Region
		if r.body == nil {
			return nil, nil, fmt.Errorf("blob %d is of a file: %w", i, ErrUnsupported)
		}
		if r.body.hasEnded() {
			return nil, nil, fmt.Errorf("the memory of blob %d has ended: %w", i, ErrLost)
		}
		if !slices.Contains(made.regions, r) {
			made.regions, b.of = append(made.regions, r), append(b.of, r.body)
		}
		b.appendBlob(&blobs[i])
	}
	return b, made.tier, nil
}

// appendBlob makes content longer before anybody has it. Blobs that are
// neighbours in memory are one part.
func (b *bound) appendBlob(blob *Blob) {
	if n := len(b.parts); n > 0 {
		last := &b.parts[n-1]
		if last.of == blob.Region.body && last.at+last.n == blob.Off {
			last.n += blob.Len
			b.size += blob.Len
			return
		}
	}
	b.parts = append(b.parts, boundPart{off: b.size, n: blob.Len, of: blob.Region.body, at: blob.Off})
	b.size += blob.Len
}

// checkBlobList says whether blobs are a holder's, inside their regions, and
// all on one device.
func checkBlobList(h *Holder, blobs []Blob) error {
	if _, err := checkBlobRanges(blobs); err != nil {
		return err
	}
	first := blobs[0].Region.tier
	for i := range blobs {
		switch r := blobs[i].Region; {
		case r.holder != h:
			return fmt.Errorf("blob %d is no memory of this user: %w", i, ErrInvalid)
		case r.tier != first:
			return fmt.Errorf("blob %d is on %s, blob 0 on %s: %w", i, r.tier.name, first.name, ErrInvalid)
		}
	}
	return nil
}

// attend has fn called, in the background, when a region ends that content is
// made of: at once when one has ended by now, and maybe more than once. It is
// called when the records know of the content.
func (b *bound) attend(fn func(ctx context.Context)) {
	b.made.holder.blobs.Add(int64(len(b.made.blobs)))
	for _, r := range b.made.regions {
		r.join(b, fn)
	}
	b.watched(b.part)
}

// part ends what attend began.
func (b *bound) part() {
	b.made.holder.blobs.Add(-int64(len(b.made.blobs)))
	for _, r := range b.made.regions {
		r.part(b)
	}
}

// adoptBound puts an object of bound content in the table, where it stays. One
// that is new is put there before its record is written, so that who finds the
// record finds the content; dropBound takes it out again.
func (tb *table) adoptBound(ino Ino, t *tier, b *bound, f facts) {
	o := &object{table: tb, ino: ino, lane: newLane(), tier: t, body: b, facts: f}
	o.foreign.Store(true)
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.getLocked(ino).obj = o
}

// dropBound takes an object out of the table whose record was not written.
func (tb *table) dropBound(ino Ino) {
	sh := tb.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.entries[ino]; e != nil && e.pins == 0 {
		e.obj = nil
		sh.sweepLocked(ino, e)
	}
}

// sessionBinding is the record of content that is made of blobs: what ends
// with the run.
func sessionBinding(who Caller) ([]byte, error) {
	return json.Marshal(binding{Version: bindingVersion, UID: who.UID, Session: true})
}
