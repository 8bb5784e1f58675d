package cluster

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// The pause between two checks for keys: at first, and at most.
const (
	lookFirst = 2 * time.Millisecond
	lookLast  = 250 * time.Millisecond
)

// findAtOnce is the number of keys that are looked up in the index at a time.
const findAtOnce = 4

// WatchKeys calls came when keys become visible at other nodes, or are published there: from
// any goroutine, possibly more than once, and also for those that existed before. A key may
// have been removed again by then. came may block. stop ends the watch, and returns when came
// is no longer running.
func (c *Cluster) WatchKeys(ctx context.Context, published bool, names []string, came func(key string)) (stop func()) {
	ctx, end := context.WithCancel(ctx)
	left := context.AfterFunc(c.life, end) //nolint:contextcheck // the end of the cluster cancels it too
	w := &keyWatch{
		k: c.keys, space: spaceOf(published), names: names, came: came,
		kick: make(chan struct{}, 1), coming: map[string]members.Name{},
	}
	over := make(chan struct{})
	begun := c.Go(func() {
		defer close(over)
		w.follow(ctx)
	})
	if !begun {
		close(over)
	}
	return func() {
		left()
		end()
		<-over
	}
}

// keyWatch waits for keys. The index reports that a node has claimed one; the node is then
// polled until the key is visible there.
type keyWatch struct {
	k     *keys
	space keyindex.Space
	names []string
	came  func(key string)
	// kick has room for one token: there is something to look for.
	kick chan struct{}
	// asking waits for the goroutines of look and askAll, and asked holds the names of the nodes
	// that the latter are asking.
	asking sync.WaitGroup
	asked  sync.Map

	mu sync.Mutex
	// coming holds the keys that a node has claimed.
	// +checklocks:mu
	coming map[string]members.Name
}

// follow learns from the index which keys are claimed, and looks for these. Without an index, and while it is
// unavailable, all nodes are polled.
func (w *keyWatch) follow(ctx context.Context) {
	defer w.asking.Wait()
	w.asking.Go(func() { w.look(ctx) })
	for wait := lookFirst; ctx.Err() == nil; wait = min(2*wait, lookLast) {
		if w.k.index != nil {
			w.listen(ctx)
		}
		w.askAll(ctx)
		pause(ctx, wait)
	}
}

// pause waits for some time, or for the end of a context.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// listen receives from the index, until it becomes unavailable.
func (w *keyWatch) listen(ctx context.Context) {
	begun, err := w.k.index.Watch(ctx, w.space, w.names)
	if err != nil {
		return
	}
	defer begun.Close()
	// Keys claimed before the watch are found, later ones are reported by it.
	w.findAll(ctx)
	for {
		places, err := begun.Next(ctx)
		if err != nil {
			return
		}
		w.expect(places...)
	}
}

// findAll looks up all keys in the index.
func (w *keyWatch) findAll(ctx context.Context) {
	_ = objects.Parallel(ctx, len(w.names), findAtOnce, func(ctx context.Context, i int) error {
		if place, err := w.k.index.Find(ctx, w.space, w.names[i]); err == nil {
			w.expect(place)
		}
		return ctx.Err()
	})
}

// expect records keys that are, or will soon be, visible.
func (w *keyWatch) expect(places ...keyindex.Place) {
	w.mu.Lock()
	for _, p := range places {
		w.coming[p.Key] = p.Node
	}
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// askAll asks all nodes for all keys and returns at once: a slow node delays no other, and is
// not asked again before it has answered.
func (w *keyWatch) askAll(ctx context.Context) {
	q := proto.HaveKeysAsk{Keys: w.names, Publish: w.space == keyindex.Publish}
	for _, r := range w.k.c.opts.View.Nodes() {
		n, err := w.k.c.Node(r.Name)
		if err != nil {
			continue
		}
		if _, busy := w.asked.LoadOrStore(n.name, true); busy {
			continue
		}
		w.asking.Go(func() {
			defer w.asked.Delete(n.name)
			// A node that can't be asked now is asked again.
			_ = n.haveAll(ctx, q, func(i int, has bool) {
				if has && ctx.Err() == nil {
					w.came(w.names[i])
				}
			})
		})
	}
}

// look asks the nodes that have claimed keys whether the keys are visible.
func (w *keyWatch) look(ctx context.Context) {
	wait := lookFirst
	for ctx.Err() == nil {
		coming := w.expected()
		if len(coming) == 0 {
			wait = lookFirst
			select {
			case <-w.kick:
			case <-ctx.Done():
			}
			continue
		}
		for node, names := range coming {
			w.lookAt(ctx, node, names)
		}
		if wait >= lookLast {
			w.doubt(ctx)
		}
		if len(w.expected()) > 0 {
			pause(ctx, wait)
			wait = min(2*wait, lookLast)
		}
	}
}

// expected returns the keys that are coming, by node.
func (w *keyWatch) expected() map[members.Name][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	by := map[members.Name][]string{}
	for key, node := range w.coming {
		by[node] = append(by[node], key)
	}
	return by
}

// lookAt asks one node, and reports the keys that are visible there.
func (w *keyWatch) lookAt(ctx context.Context, node members.Name, names []string) {
	n, err := w.k.c.Node(node)
	if err != nil {
		return
	}
	// A node that can't be asked now is asked again.
	_ = n.haveAll(ctx, proto.HaveKeysAsk{Keys: names, Publish: w.space == keyindex.Publish}, func(i int, has bool) {
		if has && w.arrived(names[i], node) && ctx.Err() == nil {
			w.came(names[i])
		}
	})
}

// arrived removes a key from those expected from a node, and reports whether it was one.
func (w *keyWatch) arrived(key string, node members.Name) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.coming[key] != node {
		return false
	}
	delete(w.coming, key)
	return true
}

// doubt looks up again in the index the keys that have been coming for long: the nodes that
// claimed them may have released them.
func (w *keyWatch) doubt(ctx context.Context) {
	w.mu.Lock()
	coming := maps.Clone(w.coming)
	w.mu.Unlock()
	for key, node := range coming {
		w.k.index.Forget(w.space, key)
		place, err := w.k.index.Find(ctx, w.space, key)
		if (err == nil && place.Node != node || isGone(err)) && w.arrived(key, node) && err == nil {
			w.expect(place)
		}
	}
}
