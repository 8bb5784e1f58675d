package members

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// markSuffix ends the name of a node's mark: a copy of its record without a
// lease, which stays when the node dies. A node that leaves removes its own, so
// a record that goes while its mark is there is a node that was cut off, whose
// names are not gone.
const markSuffix = "/mark"

// nodeOf is the node that an entry is of, and whether it is its mark.
func nodeOf(entry string) (name Name, mark bool) {
	text, mark := strings.CutSuffix(strings.TrimPrefix(entry, prefix), markSuffix)
	return Name(text), mark
}

// mark makes the mark of our record, or brings it up to date.
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

// unmark removes our mark, unless a later incarnation has made it its own.
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

// Forget removes what is kept of a node that died or was cut off; see View.
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

// setMark notes the mark of a node. Of one without a record it is all that is
// known.
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
	if rank := r.Name.Rank(); t.ranks[rank] == "" {
		t.ranks[rank] = r.Name
	}
	t.feed.push(Event{Kind: Joined, Record: r.clone()})
	return nil
}

// dropMark notes that a node's mark is gone: it leaves, or was forgotten.
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

// lapse notes that a node's record is gone. Without a mark so is the node.
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
