package fs

import "context"

// keyLister lists keys/. The keys go on behind a key, the kernel at a number,
// so the lister remembers the keys in the order in which it has listed them:
// offset dotsEnd+i is behind the key of number i.
type keyLister struct {
	keys func(ctx context.Context, behind string, limit int) ([]dirEntry, error)
	seen []string
}

// list is a lister. It is called with the lock of its directory's handle.
func (l *keyLister) list(ctx context.Context, after uint64, limit int) ([]dirEntry, error) {
	known := min(after-dotsEnd, uint64(len(l.seen)))
	behind := ""
	if known > 0 {
		behind = l.seen[known-1]
	}
	entries, err := l.keys(ctx, behind, limit)
	if err != nil {
		return nil, err
	}
	l.seen = l.seen[:known]
	for i := range entries {
		l.seen = append(l.seen, entries[i].name)
		entries[i].offset = dotsEnd + uint64(len(l.seen))
	}
	return entries, nil
}
