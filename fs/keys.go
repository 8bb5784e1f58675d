package fs

// keyLister lists keys/. The keys go on behind a key, the kernel at a number,
// so the lister remembers the keys in the order in which it has listed them:
// offset dotsEnd+i is behind the key of number i.
type keyLister struct{ seen []string }

// note numbers the keys that behind returns. It is called with the lock of its
// directory's handle.
func (l *keyLister) note(after uint64, behind func(key string) ([]dirEntry, error)) ([]dirEntry, error) {
	known := min(after-dotsEnd, uint64(len(l.seen)))
	last := ""
	if known > 0 {
		last = l.seen[known-1]
	}
	entries, err := behind(last)
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
