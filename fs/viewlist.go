package fs

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

// slotMask are the bits of a cookie in which the store tells names of one
// hash apart. It counts up from 0, and hardly ever gets to 1, so the views of
// these names take the numbers down from the end.
const slotMask = 0xff

// listWithViews lists a directory of the store's with the views of its files,
// each of which stands soon behind its file.
func (v *views) listWithViews(ino metadata.Ino, files lister) lister {
	return func(ctx context.Context, after uint64, limit int) ([]dirEntry, error) {
		return v.pageWithViews(ctx, ino, files, after, limit)
	}
}

// pageWithViews is one page of that.
func (v *views) pageWithViews(ctx context.Context, ino metadata.Ino, files lister, after uint64, limit int) ([]dirEntry, error) {
	from := after
	if after > lastReserved {
		// The entries of this hash are wanted again, as some of their views
		// may be behind the offset.
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

// wholeHashes leaves out the last hash of a full page, which may go on behind
// it, unless it is the only one.
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
			continue // what is really there is listed already
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
