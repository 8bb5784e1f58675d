package fs

import (
	"context"
	"errors"
	"sort"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
)

const (
	// dotsEnd is the offset behind "." and "..", which have 1 and 2. The
	// store's cookies begin at 256, so what stands between is free for the
	// entries of hmcfs's own.
	dotsEnd = 2
	// lastReserved is the last offset that no cookie of the store has.
	lastReserved = 255
	// pageEntries is how many entries one call of the store brings: a
	// directory of 100 000 then takes 200 of them.
	pageEntries = 512
)

// dirEntry is one name of a directory. Going on behind it is going on at its
// offset. Offsets grow.
type dirEntry struct {
	name   string
	ino    metadata.Ino
	mode   metadata.Mode
	offset uint64
}

func (e *dirEntry) fuse() fuse.DirEntry {
	return fuse.DirEntry{Name: e.name, Ino: uint64(e.ino), Mode: uint32(e.mode), Off: e.offset}
}

// lister lists what a directory holds, in the order of offsets, beside "."
// and "..": up to limit entries behind an offset. None is the end.
type lister func(after uint64, limit int) ([]dirEntry, error)

// dirHandle is one open directory.
type dirHandle struct {
	ino  metadata.Ino
	list lister
	// ask stands for list where other nodes may be asked for entries.
	ask func(ctx context.Context, after uint64, limit int) ([]dirEntry, error)
	// dots makes "." and "..".
	dots func() []dirEntry

	mu sync.Mutex
	// page are the entries behind the offset from, as they were when names
	// was the number of the namespace.
	// +checklocks:mu
	page []dirEntry
	// +checklocks:mu
	from uint64
	// +checklocks:mu
	names uint64
}

func (f *filesystem) newDirHandle(ino metadata.Ino) *dirHandle {
	h := &dirHandle{ino: ino}
	h.dots = func() []dirEntry { return f.dots(ino) }
	switch {
	case isView(ino):
		h.list = (&viewLister{views: &f.views, id: ino}).list
	case ino == metadata.RootIno:
		h.list = f.listRoot
	case ino == controlIno:
		h.list = listFixed(controlEntries())
	case ino == keysIno && f.opts.Cluster == nil:
		own := &keyLister{}
		h.list = func(after uint64, limit int) ([]dirEntry, error) {
			return own.note(after, func(behind string) ([]dirEntry, error) { return f.ownKeys(behind, limit) })
		}
	case ino == keysIno:
		all := &keyLister{}
		h.ask = func(ctx context.Context, after uint64, limit int) ([]dirEntry, error) {
			return all.note(after, func(behind string) ([]dirEntry, error) { return f.keysBehind(ctx, behind, limit) })
		}
	case ino == nodesIno && f.opts.Cluster != nil:
		h.list = (&nodesLister{fs: f}).list
	default:
		h.list = func(after uint64, limit int) ([]dirEntry, error) {
			if f.opts.ListViews && ino != metadata.PublishIno {
				return f.listWithViews(ino, after, limit)
			}
			return f.listStore(ino, after, limit)
		}
	}
	return h
}

// after returns entries behind an offset; none is the end. A page that was
// read is used again as long as no name of the mount has changed and the
// reader does not start over.
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
	entries, err := h.read(ctx, max(at, dotsEnd))
	if err != nil {
		return nil, err
	}
	h.page, h.from, h.names = append(page, entries...), at, names
	return h.page, nil
}

// read returns a page.
func (h *dirHandle) read(ctx context.Context, after uint64) ([]dirEntry, error) {
	if h.ask != nil {
		return h.ask(ctx, after, pageEntries)
	}
	return h.list(after, pageEntries)
}

// dots returns "." and "..".
func (f *filesystem) dots(ino metadata.Ino) []dirEntry {
	parent := metadata.RootIno
	if isView(ino) {
		parent = f.viewParent(ino)
	} else if isReserved(ino) || ino == metadata.PublishIno {
		parent = reservedParent(ino)
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

// listStore lists a directory of the store's. One that has been removed while
// it is open has no entries.
func (f *filesystem) listStore(ino metadata.Ino, after uint64, limit int) ([]dirEntry, error) {
	cookie := metadata.Cookie(after)
	if after <= lastReserved {
		cookie = 0
	}
	found, err := f.store.ReadDir(background(), ino, cookie, limit)
	if errors.Is(err, metadata.ErrNotExist) {
		return nil, nil
	}
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

// listFixed lists entries that are always there.
func listFixed(all []dirEntry) lister {
	return func(after uint64, _ int) ([]dirEntry, error) {
		i := sort.Search(len(all), func(i int) bool { return all[i].offset > after })
		return all[i:], nil
	}
}

// listRoot lists what belongs to hmcfs, then the devices.
func (f *filesystem) listRoot(after uint64, limit int) ([]dirEntry, error) {
	own, err := listFixed(f.rootEntries())(after, limit)
	if err != nil {
		return nil, err
	}
	devices, err := f.listStore(metadata.RootIno, after, limit)
	return append(own, devices...), err
}
