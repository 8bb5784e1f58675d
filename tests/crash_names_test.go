package tests

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// namesWriter changes names below one directory and knows which must exist, whenever the
// daemon dies. Its files are empty.
type namesWriter struct {
	dir string
	// id makes the keys of two writers distinct.
	id  int
	rng *rand.Rand
	// drawn counts the keys: a renamed file keeps its key, so a key that was used before may
	// belong to another file.
	drawn int
	// acked maps each path to its entry after the acknowledged changes, next after the pending
	// change, if there is one.
	acked, next map[string]entry
}

// entry holds what is known of one name.
type entry struct {
	dir        bool
	xattr, key string
}

// work changes names until the daemon is dead or stop returns true.
func (w *namesWriter) work(stop func() bool) error {
	if err := os.Mkdir(w.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return deadOr(err)
	}
	for !stop() {
		do := w.choose()
		if err := do(); err != nil {
			return deadOr(err)
		}
		w.acked, w.next = w.next, nil
	}
	return nil
}

// choose selects a change that must succeed, and records its outcome in next.
func (w *namesWriter) choose() func() error {
	w.next = maps.Clone(w.acked)
	if w.next == nil {
		w.next = map[string]entry{}
	}
	name := fmt.Sprintf("n%d", w.rng.IntN(12))
	path := filepath.Join(w.dir, name)
	e, there := w.next[name]
	switch {
	case !there && w.rng.IntN(3) == 0:
		w.next[name] = entry{dir: true}
		return func() error { return os.Mkdir(path, 0o755) }
	case !there:
		w.next[name] = entry{}
		return func() error { return createEmpty(path) }
	}
	switch w.rng.IntN(4) {
	case 0:
		delete(w.next, name)
		return func() error { return os.Remove(path) }
	case 1:
		return w.rename(name, e)
	case 2:
		e.xattr = fmt.Sprintf("value %d", w.rng.IntN(1000))
		w.next[name] = e
		return func() error { return unix.Setxattr(path, "user.note", []byte(e.xattr), 0) }
	}
	if e.dir {
		return w.rename(name, e)
	}
	w.drawn++
	e.key = fmt.Sprintf("key-%d-%d", w.id, w.drawn)
	w.next[name] = e
	return func() error { return unix.Setxattr(path, "user.hmc.key", []byte(e.key), 0) }
}

// rename renames to a name of the same kind or to an unused one.
func (w *namesWriter) rename(name string, e entry) func() error {
	to := fmt.Sprintf("n%d", w.rng.IntN(12))
	if other, there := w.next[to]; there && other.dir != e.dir {
		to = name
	}
	if to != name {
		delete(w.next, name)
		w.next[to] = e
	}
	return func() error { return unix.Rename(filepath.Join(w.dir, name), filepath.Join(w.dir, to)) }
}

func createEmpty(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// check compares the names with those that were acknowledged: the pending change is either
// complete or has had no effect.
func (w *namesWriter) check(keys string) error {
	got, err := w.list(keys)
	if err != nil {
		return err
	}
	if !maps.Equal(got, w.acked) && (w.next == nil || !maps.Equal(got, w.next)) {
		return fmt.Errorf("%s has\n%v\nacknowledged are\n%v\nand after what was under way\n%v", w.dir, got, w.acked, w.next)
	}
	w.acked, w.next = got, nil
	return nil
}

// list reads the existing names, and follows each key.
func (w *namesWriter) list(keys string) (map[string]entry, error) {
	entries, err := os.ReadDir(w.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[string]entry{}
	for _, d := range entries {
		path := filepath.Join(w.dir, d.Name())
		e := entry{dir: d.IsDir()}
		for name, to := range map[string]*string{"user.note": &e.xattr, "user.hmc.key": &e.key} {
			if *to, err = getXattr(path, name); err != nil && !errors.Is(err, unix.ENODATA) {
				return nil, fmt.Errorf("%s: %s: %w", path, name, err)
			}
		}
		if e.key != "" {
			if err := sameFile(path, filepath.Join(keys, e.key)); err != nil {
				return nil, err
			}
		}
		out[d.Name()] = e
	}
	return out, nil
}

// sameFile checks that two paths lead to the same file.
func sameFile(a, b string) error {
	one, err := os.Stat(a)
	if err != nil {
		return err
	}
	two, err := os.Stat(b)
	if err != nil {
		return err
	}
	if !os.SameFile(one, two) {
		return fmt.Errorf("%s and %s are two files", a, b)
	}
	return nil
}

// keys returns the keys of the names, sorted.
func (w *namesWriter) keys() []string {
	var out []string
	for _, e := range w.acked {
		if e.key != "" {
			out = append(out, e.key)
		}
	}
	slices.Sort(out)
	return out
}
