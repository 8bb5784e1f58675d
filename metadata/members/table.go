package members

import (
	"slices"
	"strings"
	"sync"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// table holds the other nodes of a view. The records in it are never changed, only
// replaced.
type table struct {
	feed feed

	mu sync.RWMutex
	// +checklocks:mu
	nodes map[Name]row
	// +checklocks:mu
	ranks map[uint32]Name
	// bytes is the total size of all records.
	// +checklocks:mu
	bytes int
}

// row is a node and the revision as of which it is known.
type row struct {
	Record
	revision coord.Revision
	// marked is set while the node has a mark, which outlives its record.
	marked bool
	// size is the size in bytes of the record in the service.
	size int
}

func newTable() *table {
	return &table{nodes: make(map[Name]row), ranks: make(map[uint32]Name)}
}

// Nodes lists the nodes by name; see View.
func (t *table) Nodes() []Record {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]Record, 0, len(t.nodes))
	for _, n := range t.nodes {
		all = append(all, n.clone())
	}
	slices.SortFunc(all, func(a, b Record) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

// Get finds a node; see View.
func (t *table) Get(name Name) (Record, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n, ok := t.nodes[name]
	return n.clone(), ok
}

// ByRank finds a node by its rank; see View.
func (t *table) ByRank(rank uint32) (Record, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	name, ok := t.ranks[rank]
	if !ok {
		return Record{}, false
	}
	return t.nodes[name].clone(), true
}

// OnEvent has fn called with every change; see View.
func (t *table) OnEvent(fn func(Event)) func() { return t.feed.on(fn) }

// putLocked stores a node's row, if there is room for it.
//
// Errors: errFull.
//
// +checklocks:t.mu
func (t *table) putLocked(r row) error {
	old, had := t.nodes[r.Name]
	if all := t.bytes - old.size + r.size; !had && len(t.nodes) == MaxNodes || all > maxBytes && r.size > old.size {
		return errFull
	}
	t.bytes += r.size - old.size
	t.nodes[r.Name] = r
	if rank := r.Name.Rank(); !had && t.ranks[rank] == "" {
		t.ranks[rank] = r.Name
	}
	return nil
}

// set records the state of a node as of a revision, from a record of size bytes. A state
// older than the known one is ignored.
//
// Errors: errFull.
func (t *table) set(r Record, revision coord.Revision, size int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, had := t.nodes[r.Name]
	if had && revision < old.revision {
		return nil
	}
	if err := t.putLocked(row{Record: r, revision: revision, marked: old.marked, size: size}); err != nil {
		return err
	}
	switch {
	case !had:
		t.feed.push(Event{Kind: Joined, Record: r.clone()})
	case old.Epoch != 0 && (old.Epoch != r.Epoch || old.ID != r.ID):
		t.feed.push(Event{Kind: Left, Record: old.Record}, Event{Kind: Joined, Record: r.clone()})
	case !old.equal(r):
		t.feed.push(Event{Kind: Changed, Record: r.clone()})
	}
	return nil
}

// remove deletes a node, unless a state later than the revision is known.
func (t *table) remove(name Name, revision coord.Revision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, had := t.nodes[name]
	if !had || revision < old.revision {
		return
	}
	delete(t.nodes, name)
	t.bytes -= old.size
	rank := name.Rank()
	if t.ranks[rank] == name {
		delete(t.ranks, rank)
		for other := range t.nodes {
			if other.Rank() == rank {
				t.ranks[rank] = other
			}
		}
	}
	t.feed.push(Event{Kind: Left, Record: old.Record})
}

// forget makes all known revisions older than any other, and clears all marks, so that the
// next listing overrides them.
func (t *table) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, n := range t.nodes {
		n.revision, n.marked = 0, false
		t.nodes[name] = n
	}
}

// missing returns the nodes that are not in listed.
func (t *table) missing(listed map[Name]bool) []Name {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []Name
	for name := range t.nodes {
		if !listed[name] {
			out = append(out, name)
		}
	}
	return out
}

// revisionOf returns the revision as of which a node is known; 0 if it is not.
func (t *table) revisionOf(name Name) coord.Revision {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.nodes[name].revision
}
