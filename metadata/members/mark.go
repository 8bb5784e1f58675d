package members

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// markSuffix ends the name of a node's mark: a copy of its record without a lease, which
// remains when the node dies. A node that leaves removes its own mark, so a record that
// disappears while its mark remains belongs to a node that died or was cut off, whose names
// still exist.
const markSuffix = "/mark"

// nodeOf returns the node of an entry, and whether the entry is its mark.
func nodeOf(entry string) (name Name, mark bool) {
	text, mark := strings.CutSuffix(strings.TrimPrefix(entry, prefix), markSuffix)
	return Name(text), mark
}

// mark creates or updates the mark of this node.
func (m *Members) mark(ctx context.Context) error {
	entry, err := m.entry()
	if err != nil {
		return err
	}
	entry.Name += markSuffix
	results, err := m.service.Create(ctx, []coord.Entry{entry}, nil)
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	err = results[0].Err
	if found := results[0].Found; errors.Is(err, coord.ErrExist) {
		if err = nil; string(found.Value) != string(entry.Value) {
			_, err = m.replace(ctx, found, entry.Value, nil)
		}
	}
	return err
}

// unmark removes this node's mark, unless a later incarnation has replaced it.
func (m *Members) unmark(ctx context.Context) error {
	self := m.Self()
	mark, err := m.service.Get(ctx, prefix+string(self.Name)+markSuffix)
	if errors.Is(err, coord.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := decode(prefix+string(self.Name), mark.Value)
	if err == nil && (r.ID != self.ID || r.Epoch > self.Epoch) {
		return nil
	}
	results, err := m.service.Delete(ctx, []coord.Entry{mark})
	if err == nil && !errors.Is(results[0].Err, coord.ErrChanged) {
		err = results[0].Err
	}
	return err
}

// Forget removes the mark of a node that died or was cut off; see View.
func (m *Members) Forget(ctx context.Context, name Name) error {
	if err := name.Validate(); err != nil {
		return err
	}
	_, err := m.service.Get(ctx, prefix+string(name))
	if err == nil {
		return fmt.Errorf("node %s: %w", name, ErrPresent)
	}
	if !errors.Is(err, coord.ErrNotFound) {
		return err
	}
	mark, err := m.service.Get(ctx, prefix+string(name)+markSuffix)
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	results, err := m.service.Delete(ctx, []coord.Entry{mark})
	switch {
	case err != nil:
		return err
	case errors.Is(results[0].Err, coord.ErrChanged):
		return fmt.Errorf("node %s: %w", name, ErrPresent) // it came back just now
	}
	return results[0].Err
}

// setMark records the mark of a node. For a node without a record, r, the mark's copy, is
// all that is known.
//
// Errors: errFull.
func (t *table) setMark(r Record, revision coord.Revision, size int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, had := t.nodes[r.Name]
	if had {
		old.marked = true
		t.nodes[r.Name] = old
		return nil
	}
	r.Lapsed = time.Now()
	if err := t.putLocked(row{Record: r, revision: revision, marked: true, size: size}); err != nil {
		return err
	}
	t.feed.push(Event{Kind: Joined, Record: r.clone()})
	return nil
}

// dropMark records that a node's mark was removed: the node left, or was forgotten.
func (t *table) dropMark(name Name, revision coord.Revision) {
	t.mu.Lock()
	old, had := t.nodes[name]
	if had {
		old.marked = false
		t.nodes[name] = old
	}
	t.mu.Unlock()
	if had && !old.Lapsed.IsZero() {
		t.remove(name, revision)
	}
}

// lapse records that a node's record is gone. A node without a mark is removed.
func (t *table) lapse(name Name, revision coord.Revision) {
	t.mu.Lock()
	old, had := t.nodes[name]
	if !had || !old.marked || revision < old.revision {
		t.mu.Unlock()
		t.remove(name, revision)
		return
	}
	defer t.mu.Unlock()
	if old.Lapsed.IsZero() {
		old.Lapsed, old.revision = time.Now(), revision
		t.nodes[name] = old
		t.feed.push(Event{Kind: Changed, Record: old.clone()})
	}
}
