package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// figure is a measurement in words.
type figure struct{ name, value string }

// trial is the measurement of one world.
type trial struct {
	*world
	nodeCount int
	figures   []figure
	progress  io.Writer
	resting   time.Duration // the time for which idle nodes are measured
	// bare returns the service's share of the process's memory, in bytes.
	bare func(ctx context.Context, keys bool) (uint64, error)
}

func (t *trial) add(name, format string, args ...any) {
	f := figure{name: name, value: fmt.Sprintf(format, args...)}
	t.figures = append(t.figures, f)
	fmt.Fprintf(t.progress, "    %-44s %s\n", f.name, f.value)
}

// run runs all measurements.
func (t *trial) run(ctx context.Context) error {
	for _, phase := range []func(context.Context) error{
		t.joinAll, t.one, t.claim, t.find, t.death, t.rest, t.outage, t.lost,
	} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// joinAll lets all nodes join at once, as after a power failure.
func (t *trial) joinAll(ctx context.Context) error {
	before, u := heap(), t.now()
	t.nodes = make([]*node, t.nodeCount)
	err := each(t.nodeCount, func(i int) (err error) {
		t.nodes[i], err = t.join(ctx, i)
		return err
	})
	if err != nil {
		return err
	}
	err = t.until(ctx, func(n *node) bool {
		for i := max(0, t.nodeCount-4*atOnce); i < t.nodeCount; i++ {
			if _, ok := n.members.Get(name(i)); !ok && t.nodes[i] != n {
				return false
			}
		}
		return true
	})
	used := t.since(u)
	if err != nil {
		return err
	}
	for i, n := range t.nodes {
		if got := len(n.members.Nodes()); got != t.nodeCount-1 {
			return fmt.Errorf("node %d sees %d others", i, got)
		}
	}
	bare, err := t.bare(ctx, false)
	if err != nil {
		return err
	}
	n := uint64(t.nodeCount)
	t.add("all nodes join, until each sees all others", "%s", short(used.wall))
	t.add("… CPU time of a node", "%s", short(used.cpu/time.Duration(n)))
	t.add("… records listed and pushed, to a node", "%s", bytes((used.down+used.pushed)/n))
	t.add("memory of a node that knows all others", "%s", bytes((heap()-before-bare)/n))
	return nil
}

// one lets one more node join, change its record and leave.
func (t *trial) one(ctx context.Context) error {
	others := uint64(t.nodeCount)
	var late *node
	for _, c := range []struct {
		what string
		kind members.Kind
		do   func() error
	}{
		{"one node more joins", members.Joined, func() (err error) {
			late, err = t.join(ctx, t.nodeCount)
			return err
		}},
		{"one node changes its record", members.Changed, func() error {
			return late.members.Update(func(r *members.Record) { r.Devices = r.Devices[:2] })
		}},
		{"one node leaves", members.Left, func() error { return late.leave(ctx) }},
	} {
		u := t.now()
		if err := t.converge(ctx, c.kind, t.nodeCount, t.nodeCount, c.do); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		used := t.since(u)
		t.add(c.what+", until all have seen it", "%s", short(used.wall))
		t.add("… events, and bytes of all of them", "%d, %s", used.events, bytes(used.pushed))
		if c.kind == members.Joined {
			t.add("… read by the newcomer", "%s", bytes(used.down))
		}
		t.add("… CPU time of each other node", "%s", short(used.cpu/time.Duration(others)))
	}
	return nil
}

// claim lets each node claim its keys.
func (t *trial) claim(ctx context.Context) error {
	before, u := heap(), t.now()
	_, diskBefore := t.service.holds()
	err := each(t.nodeCount, func(i int) error {
		keys := make([]string, t.keys)
		for k := range keys {
			keys[k] = key(i, k)
		}
		return errors.Join(t.nodes[i].index.Claim(ctx, keyindex.Keys, keys)...)
	})
	if err != nil {
		return err
	}
	used := t.since(u)
	bare, err := t.bare(ctx, true)
	if err != nil {
		return err
	}
	all := uint64(t.nodeCount * t.keys)
	t.add("all keys claimed", "%s: %.0f keys/s", short(used.wall), float64(all)/used.wall.Seconds())
	t.add("… calls", "%d", used.calls)
	t.add("… told to watches of other nodes", "%d events", used.events)
	t.add("memory of a node, for each key of its own", "%d B", (heap()-before-min(bare, heap()-before))/all)
	t.add("memory of a node, for each key of others", "0 B")
	if memory, disk := t.service.holds(); disk != 0 {
		t.add("etcd's memory and database", "%s, %s (%d B for each key)", bytes(memory), bytes(disk), (disk-diskBefore)/all)
	} else {
		t.add("memory of the service, for each key", "%d B", bare/all)
	}
	return nil
}

// find looks up keys of other nodes, and lists some.
func (t *trial) find(ctx context.Context) error {
	const lookups = 10_000
	u := t.now()
	err := each(lookups, func(int) error {
		at, of, k := rand.IntN(t.nodeCount), rand.IntN(t.nodeCount), rand.IntN(t.keys)
		if at == of {
			return nil
		}
		p, err := t.nodes[at].index.Find(ctx, keyindex.Keys, key(of, k))
		if err == nil && p.Node != name(of) {
			err = fmt.Errorf("%s is at %s, not at %s", p.Key, p.Node, name(of))
		}
		return err
	})
	if err != nil {
		return err
	}
	used := t.since(u)
	t.add("a key of another node found, many at once", "%s each, %.2f calls", short(used.wall/lookups), float64(used.calls)/lookups)
	u = t.now()
	count := 0
	for after := ""; count < 100_000; {
		places, listErr := t.nodes[0].index.List(ctx, keyindex.Keys, after, 1000)
		if listErr != nil {
			return listErr
		}
		count += len(places)
		if len(places) < 1000 {
			break
		}
		after = places[len(places)-1].Key
	}
	used = t.since(u)
	t.add("ls keys/, for each 1000 of them", "%s, %s", short(used.wall*1000/time.Duration(max(count, 1))), bytes(used.down*1000/uint64(max(count, 1))))
	return nil
}

// death ends the lease of one node that has keys, and lets it join again.
func (t *trial) death(ctx context.Context) error {
	last := t.nodeCount - 1
	n := t.nodes[last]
	u := t.now()
	err := t.converge(ctx, members.Left, last, last, func() error { return n.members.Close(ctx) })
	if err != nil {
		return err
	}
	used := t.since(u)
	t.add("the lease of a node with its keys ends", "%s until all have seen it, %s", short(used.wall), bytes(used.pushed))
	err = t.gone(ctx, last)
	if err != nil {
		return err
	}
	t.add("… until the last key is gone", "%s", short(t.since(u).wall))
	n.quiet()
	if err = errors.Join(n.index.Close(), n.service.Close()); err != nil {
		return err
	}
	if t.nodes[last], err = t.join(ctx, last); err != nil {
		return err
	}
	return errors.Join(t.nodes[last].index.Claim(ctx, keyindex.Keys, []string{key(last, 0)})...)
}

// gone waits until the service has no entry of a node's keys.
func (t *trial) gone(ctx context.Context, i int) error {
	prefix := "keys/" + key(i, 0)
	prefix = prefix[:len(prefix)-6]
	return await(ctx, time.Millisecond, func() (bool, error) {
		found, _, err := t.nodes[0].service.List(ctx, prefix, "", 1)
		return len(found) == 0, err
	})
}

// rest measures idle nodes.
func (t *trial) rest(ctx context.Context) error {
	u := t.now()
	select {
	case <-time.After(t.resting):
	case <-ctx.Done():
		return ctx.Err()
	}
	used := t.since(u)
	n := float64(t.nodeCount)
	t.add("at rest: calls of a node, without its lease's", "%.2f/s, %s/s", float64(used.calls)/n/t.resting.Seconds(), bytes(uint64(float64(used.down+used.up)/n/t.resting.Seconds())))
	t.add("… CPU time of a node", "%s in a second", short(time.Duration(float64(used.cpu)/n/t.resting.Seconds())))
	return nil
}

// well reports whether a node's view is current.
func well(n *node) bool {
	st := n.members.State()
	l, _, _ := n.members.Lease()
	return st.UnreachableSince.IsZero() && st.Problem == "" && l != nil
}

// outage makes the service unavailable for a moment.
func (t *trial) outage(ctx context.Context) error {
	if err := t.service.away(ctx, true); err != nil {
		return err
	}
	if err := t.until(ctx, func(n *node) bool { return !n.members.State().UnreachableSince.IsZero() }); err != nil {
		return err
	}
	u := t.now()
	if err := t.service.away(ctx, false); err != nil {
		return err
	}
	if err := t.until(ctx, well); err != nil {
		return err
	}
	used := t.since(u)
	t.add("the service comes back: until all are well", "%s", short(used.wall))
	t.add("… read and pushed, to a node", "%s", bytes((used.down+used.pushed)/uint64(t.nodeCount)))
	return nil
}

// lost deletes all data of the service.
func (t *trial) lost(ctx context.Context) error {
	u := t.now()
	if err := t.service.wipe(ctx); err != nil {
		return err
	}
	looker, err := t.service.client(ctx)
	if err != nil {
		return err
	}
	// Each node has a record and a mark.
	err = t.complete(ctx, looker, "nodes/", 2*t.nodeCount)
	if err == nil {
		err = t.until(ctx, well)
	}
	if err == nil {
		t.add("the service is wiped: until all nodes are back", "%s", short(t.since(u).wall))
		err = t.complete(ctx, looker, "keys/", (t.nodeCount-1)*t.keys+1)
	}
	used := t.since(u)
	t.add("… until all keys are back", "%s", short(used.wall))
	t.add("… calls, and read and pushed, to a node", "%.0f, %s", float64(used.calls)/float64(t.nodeCount), bytes((used.down+used.pushed)/uint64(t.nodeCount)))
	for i, n := range t.nodes {
		if got := len(n.members.Nodes()); got != t.nodeCount-1 {
			err = errors.Join(err, fmt.Errorf("node %d sees %d others afterwards", i, got))
		}
	}
	return errors.Join(err, looker.Close())
}

// complete waits until the service has the given number of entries.
func (t *trial) complete(ctx context.Context, s coord.Service, prefix string, want int) error {
	count := 0
	err := await(ctx, 50*time.Millisecond, func() (bool, error) {
		count = 0
		for after, more := "", true; more; {
			found, _, err := s.List(ctx, prefix, after, 10_000)
			if err != nil && !errors.Is(err, coord.ErrUnavailable) {
				return false, err
			}
			count += len(found)
			if more = len(found) == 10_000; more {
				after = found[len(found)-1].Name
			}
		}
		return count == want, nil
	})
	if err != nil {
		err = fmt.Errorf("%d of %d entries in %s: %w", count, want, prefix, err)
	}
	return err
}
