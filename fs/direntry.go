package fs

import (
	"context"
	"sort"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

const (
	// dotsEnd is the offset after "." and "..", which have 1 and 2. The store's cookies
	// begin at 256, so the offsets between are free for hmcfs's own entries.
	dotsEnd = 2
	// lastReserved is the last offset that no cookie of the store uses.
	lastReserved = uint64(objects.FirstCookie) - 1
	// pageEntries is the number of entries read with one call of the store: a directory of
	// 100 000 entries then takes 200 calls.
	pageEntries = 512
)

// dirEntry is one name of a directory. Listing resumes after an entry at its offset.
// Offsets increase.
type dirEntry struct {
	name   string
	ino    metadata.Ino
	mode   metadata.Mode
	offset uint64
}

func (e *dirEntry) fuse() fuse.DirEntry {
	return fuse.DirEntry{Name: e.name, Ino: uint64(e.ino), Mode: uint32(e.mode), Off: e.offset}
}

// lister lists a directory without "." and "..", in the order of offsets: up to limit
// entries after an offset. An empty result is the end.
type lister func(ctx context.Context, after uint64, limit int) ([]dirEntry, error)

// dirHandle is one open directory.
type dirHandle struct {
	ino  metadata.Ino
	list lister
	// waits is true where other nodes may be asked for entries.
	waits bool
	// pinned is true if the store counts the handle.
	pinned bool
	// dots returns "." and "..".
	dots func() []dirEntry

	mu sync.Mutex
	// page is the entries after the offset from, read when filesystem.names had the value
	// names.
	// +checklocks:mu
	page []dirEntry
	// +checklocks:mu
	from uint64
	// +checklocks:mu
	names uint64
}

// newDirHandle opens a directory of any kind.
func (f *filesystem) newDirHandle(cancel <-chan struct{}, header *fuse.InHeader, ino metadata.Ino) (h *dirHandle, err error) {
	h = &dirHandle{ino: ino, waits: cluster.OfAnotherNode(ino)}
	h.dots = func() []dirEntry { return f.dots(ino) }
	if n := f.provided(ino); n != nil {
		h.list, err = n.list(cancel, header, h)
	} else {
		h.list, err = f.listInTree(cancel, header, h)
		if h.pinned = err == nil && isOwn(ino); h.pinned {
			f.store.PinDir(background(), ino)
		}
	}
	return h, err
}

// close ends a handle of a directory of the store.
func (h *dirHandle) close(s *objects.Store) {
	if h.pinned {
		s.UnpinDir(h.ino)
	}
}

// listInTree returns the lister of a directory of the tree.
func (f *filesystem) listInTree(cancel <-chan struct{}, header *fuse.InHeader, h *dirHandle) (lister, error) {
	ctx, who, done := f.call(cancel, header, h.ino)
	defer done()
	dir, err := f.tree.OpenDir(ctx, who, h.ino)
	if err != nil {
		return nil, err
	}
	list := listDir(dir)
	switch {
	case h.waits:
		// The kernel has just fetched the attributes, so the node need not be asked.
		parent := h.ino
		if a, err := f.tree.Attr(ctx, who, h.ino); err == nil && a.Parent != 0 {
			parent = a.Parent
		}
		h.dots = func() []dirEntry { return dotsOf(h.ino, parent) }
	case f.opts.ListViews && hasViews(h.ino):
		return f.views.listWithViews(h.ino, list), nil
	}
	return list, nil
}

// after returns the entries after an offset; none is the end. The page read last is reused
// as long as no name of the mount has changed and the reader does not start over.
//
// +checklocks:h.mu
func (h *dirHandle) after(ctx context.Context, at, names uint64) ([]dirEntry, error) {
	if at >= h.from && at != 0 && h.names == names && len(h.page) > 0 {
		page := h.page
		i := sort.Search(len(page), func(i int) bool { return page[i].offset > at })
		if i < len(page) {
			return page[i:], nil
		}
	}
	var page []dirEntry
	if at < dotsEnd {
		page = h.dots()[at:]
	}
	entries, err := h.list(ctx, max(at, dotsEnd), pageEntries)
	if err != nil {
		return nil, err
	}
	h.page, h.from, h.names = append(page, entries...), at, names
	return h.page, nil
}

func (f *filesystem) dots(ino metadata.Ino) []dirEntry {
	parent := metadata.RootIno
	if n := f.provided(ino); n != nil {
		parent = n.parent()
	} else if a, err := f.store.Attr(background(), ino); err == nil && a.Parent != 0 {
		parent = a.Parent
	}
	return dotsOf(ino, parent)
}

func dotsOf(ino, parent metadata.Ino) []dirEntry {
	return []dirEntry{
		{name: ".", ino: ino, mode: metadata.TypeDir, offset: 1},
		{name: "..", ino: parent, mode: metadata.TypeDir, offset: 2},
	}
}

func listDir(dir objects.Dir) lister {
	return func(ctx context.Context, after uint64, limit int) ([]dirEntry, error) {
		cookie := metadata.Cookie(after)
		if after <= lastReserved {
			cookie = 0
		}
		found, err := dir.After(ctx, cookie, limit)
		if err != nil {
			return nil, err
		}
		entries := make([]dirEntry, len(found))
		for i := range found {
			e := &found[i]
			entries[i] = dirEntry{name: e.Name, ino: e.Ino, mode: e.Type, offset: uint64(e.Cookie)}
		}
		return entries, nil
	}
}

// listSnapshot lists a directory as of the start of the listing: read returns its items,
// and show describes one, apart from its offset. The lister is called with the lock of its
// directory's handle held.
func listSnapshot[T any](read func(context.Context) ([]T, error), show func(T) dirEntry) lister {
	var items []T
	return func(ctx context.Context, after uint64, limit int) (entries []dirEntry, err error) {
		if after == dotsEnd || items == nil {
			if items, err = read(ctx); err != nil {
				return nil, err
			}
		}
		from := min(after-dotsEnd, uint64(len(items)))
		for _, item := range items[from:min(from+uint64(limit), uint64(len(items)))] {
			e := show(item)
			from++
			e.offset = dotsEnd + from
			entries = append(entries, e)
		}
		return entries, nil
	}
}

func listFixed(all []dirEntry) lister {
	return func(_ context.Context, after uint64, _ int) ([]dirEntry, error) {
		i := sort.Search(len(all), func(i int) bool { return all[i].offset > after })
		return all[i:], nil
	}
}
