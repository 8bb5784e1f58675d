package fs

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

// slotMask selects the bits of a cookie by which the store distinguishes names with equal
// hashes. It counts up from 0, and rarely reaches 1, so the views of these names use the
// numbers counting down from the maximum.
const slotMask = 0xff

// listWithViews lists a directory of the store together with the views of its files, each
// of which follows closely after its file.
func (v *views) listWithViews(ino metadata.Ino, files lister) lister {
	return func(ctx context.Context, after uint64, limit int) ([]dirEntry, error) {
		from := after
		if after > lastReserved {
			// The entries with this hash are needed again, as some of their views may be
			// after the offset.
			from = after&^slotMask - 1
		}
		for {
			entries, err := files(ctx, from, limit)
			if err != nil || len(entries) == 0 {
				return nil, err
			}
			entries = wholeHashes(entries, limit)
			from = entries[len(entries)-1].offset | slotMask
			if entries, err = v.addViews(ctx, ino, entries); err != nil {
				return nil, err
			}
			behind := func(e dirEntry) bool { return e.offset <= after }
			if entries = slices.DeleteFunc(entries, behind); len(entries) > 0 {
				return entries, nil
			}
		}
	}
}

// wholeHashes drops the entries with the last hash of a full page, since the next page may
// have more of them, unless it is the only hash.
func wholeHashes(page []dirEntry, limit int) []dirEntry {
	last := page[len(page)-1].offset | slotMask
	i := slices.IndexFunc(page, func(e dirEntry) bool { return e.offset|slotMask == last })
	if len(page) < limit || i == 0 {
		return page
	}
	return page[:i]
}

// addViews adds the views of the files among the entries.
func (v *views) addViews(ctx context.Context, dir metadata.Ino, entries []dirEntry) ([]dirEntry, error) {
	for _, e := range entries {
		slot := e.offset & slotMask
		if e.mode.Type() != metadata.TypeRegular || !tensors.IsFile(e.name) || slot > slotMask/2 {
			continue
		}
		name := e.name + tensors.ViewSuffix
		_, err := v.store.Lookup(ctx, dir, name)
		switch {
		case errors.Is(err, metadata.ErrNameTooLong) || err == nil:
			continue // an existing entry of that name is listed already
		case !isMissing(err):
			return nil, err
		}
		entries = append(entries, dirEntry{
			name: name, mode: metadata.TypeDir, offset: (e.offset | slotMask) - slot,
			ino: v.number(e.ino, e.name, "", nil),
		})
	}
	slices.SortStableFunc(entries, func(a, b dirEntry) int { return cmp.Compare(a.offset, b.offset) })
	return entries, nil
}
