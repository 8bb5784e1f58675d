package keyindex

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// maxWatches is the largest number of keys of one Watch that are watched individually. With
// more, their common prefix is watched.
const maxWatches = 8

// Watch starts to report keys that other nodes claim; see Index.
func (r *Registry) Watch(ctx context.Context, s Space, keys []string) (*Watch, error) {
	prefixes := keys
	if len(keys) > maxWatches {
		prefixes = []string{commonPrefix(keys)}
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	w := &Watch{
		registry: r, space: s, keys: make(map[string]struct{}, len(keys)),
		found: make(chan []Place), failed: make(chan error, len(prefixes)), end: end,
	}
	for _, key := range keys {
		w.keys[key] = struct{}{}
	}
	var begun []coord.Watch
	for _, p := range prefixes {
		one, err := r.watchOne(ctx, nameOf(s, p))
		r.observed(err)
		if err != nil {
			end()
			for _, other := range begun {
				other.Close()
			}
			return nil, fmt.Errorf("wait for keys: %w", err)
		}
		begun = append(begun, one)
	}
	for _, one := range begun {
		w.work.Go(func() { w.follow(life, one) })
	}
	return w, nil
}

// watchOne starts a watch of the changes from now on.
func (r *Registry) watchOne(ctx context.Context, prefix string) (coord.Watch, error) {
	_, now, err := r.o.Service.List(ctx, prefix, "", 1)
	if err != nil {
		return nil, err
	}
	return r.o.Service.Watch(ctx, prefix, now)
}

// commonPrefix returns the longest common prefix of the keys.
func commonPrefix(keys []string) string {
	common := keys[0]
	for _, key := range keys[1:] {
		n := 0
		for n < len(common) && n < len(key) && common[n] == key[n] {
			n++
		}
		common = common[:n]
	}
	return common
}

// Watch reports keys that other nodes claim, with one or more watches of the service. It is
// used by one goroutine; Close may be called from another.
type Watch struct {
	registry *Registry
	space    Space
	keys     map[string]struct{}
	found    chan []Place
	failed   chan error
	end      context.CancelFunc
	work     sync.WaitGroup
}

// follow forwards the results of one watch of the service.
func (w *Watch) follow(ctx context.Context, of coord.Watch) {
	defer of.Close()
	for {
		events, err := of.Next(ctx)
		if err != nil {
			w.failed <- err // failed has room for it
			return
		}
		came := w.came(events)
		if len(came) == 0 {
			continue
		}
		select {
		case w.found <- came:
		case <-ctx.Done():
			return
		}
	}
}

// came returns the watched keys that, according to events, other nodes have now.
func (w *Watch) came(events []coord.Event) []Place {
	var came []Place
	for _, e := range events {
		key, ok := keyIn(w.space, e.Name)
		if !ok || e.Deleted {
			continue
		}
		if _, ok = w.keys[key]; !ok {
			continue
		}
		has, err := decodeKeyOwner(e.Value)
		if err != nil || has.node == w.registry.o.Self {
			continue
		}
		w.registry.memory.put(e.Name, has.node)
		came = append(came, Place{Key: key, Node: has.node})
	}
	return came
}

// Next waits for the next keys, at least one. An error ends the watch; keys that were
// claimed since the last result are not reported.
//
// Errors: those of coord; the context's.
func (w *Watch) Next(ctx context.Context) ([]Place, error) {
	select {
	case came := <-w.found:
		return came, nil
	case err := <-w.failed:
		return nil, fmt.Errorf("wait for keys: %w", err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends the watch.
func (w *Watch) Close() {
	w.end()
	w.work.Wait()
}
