package fs

import (
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// keyLister lists keys/. The store goes on behind a key, the kernel at a
// number, so the lister remembers the keys in the order in which it has
// listed them: offset dotsEnd+i is behind the key of number i.
type keyLister struct {
	store *objects.Store
	seen  []string
}

// list is a lister. It is called with the lock of its directory's handle.
func (l *keyLister) list(after uint64, limit int) ([]dirEntry, error) {
	known := min(after-dotsEnd, uint64(len(l.seen)))
	behind := ""
	if known > 0 {
		behind = l.seen[known-1]
	}
	found, err := l.store.Keys(background(), behind, limit)
	if err != nil {
		return nil, err
	}
	l.seen = l.seen[:known]
	entries := make([]dirEntry, len(found))
	for i, e := range found {
		l.seen = append(l.seen, e.Key)
		entries[i] = dirEntry{
			name: e.Key, ino: e.Ino | keyBit, mode: metadata.TypeSymlink,
			offset: dotsEnd + uint64(len(l.seen)),
		}
	}
	return entries, nil
}
