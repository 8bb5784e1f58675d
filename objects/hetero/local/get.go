package local

import (
	"context"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// get is a DevMGet or MGetH2D. Its memory is used again by later ones.
type get struct {
	waiter
	begun call

	blobs   []objects.Blob
	set     []objects.Scatter
	results hetero.Results
	burst   objects.Burst
	// try and done are those of the waiter; both are made once.
	try  func(ctx context.Context, i int) error
	done func(i int, err error)
}

// longestGet is the number of keys of the longest call whose memory is kept.
const longestGet = 1024

// scatter checks a DevMGet or, with exact, an MGetH2D. Without exact, lists may have source
// offsets.
func (c *Client) scatter(keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions, exact bool) (*get, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if exact && o.Replica {
		return nil, fmt.Errorf("%w: only DevMGet can make replicas", hetero.ErrInvalid)
	}
	if err := hetero.CheckLists(keys, lists, !exact); err != nil {
		return nil, err
	}
	g := c.newGet()
	var err error
	if g.blobs, err = c.blobsOf(g.blobs[:0], keys, lists); err != nil {
		return nil, err
	}
	at := 0
	for i, key := range keys {
		end := at + len(lists[i].Blobs)
		g.set = append(g.set, objects.Scatter{
			Keyed:  objects.Keyed{Key: key, Blobs: g.blobs[at:end:end]},
			Offset: uint64(lists[i].SourceOffset), Exact: exact, Replica: o.Replica, Burst: &g.burst,
		})
		at = end
	}
	g.results = o.Into.Room(len(keys))
	g.waiter = waiter{client: c, done: g.done, plan: plan{keys: keys, timeout: o.Timeout, late: hetero.ErrNotFound, try: g.try, burst: &g.burst}}
	return g, nil
}

func (c *Client) newGet() *get {
	if g, ok := c.gets.Get().(*get); ok {
		return g
	}
	g := &get{}
	g.try = func(ctx context.Context, i int) error { return c.keys.Scatter(ctx, c.holder, g.set[i]) }
	g.done = func(i int, err error) { g.results[i] = hetero.Result{Key: g.plan.keys[i], Err: err} }
	return g
}

// read executes a DevMGet or, with exact, an MGetH2D.
func (c *Client) read(ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions, exact bool) (hetero.Results, error) {
	g, err := c.scatter(keys, lists, o, exact)
	if err != nil {
		return nil, err
	}
	if err = c.enter(ctx, &g.begun); err != nil {
		return nil, err
	}
	results := g.carriedOut() //nolint:contextcheck // its context is begun
	c.reuse(g)
	return results, results.Outcome()
}

// carriedOut executes a call that has begun, and ends it.
func (g *get) carriedOut() hetero.Results {
	defer g.begun.leave()
	return g.run(&g.begun)
}

// run executes it in a context.
func (g *get) run(ctx context.Context) hetero.Results {
	g.carryOut(ctx)
	return g.results
}

// reuse keeps the memory of a call for a later one, unless something may still refer to it: what has waited may
// be told of keys, and what has failed, or has asked other nodes, may look at its context.
func (c *Client) reuse(g *get) {
	again := g.plan.timeout == 0 && !g.set[0].Replica && len(g.set) <= longestGet &&
		len(g.blobs) <= longestGet && !c.keys.CanWait() &&
		!slices.ContainsFunc(g.results, func(r hetero.Result) bool { return r.Err != nil })
	if !again || !g.begun.reusable() {
		return
	}
	clear(g.set)
	clear(g.blobs)
	g.set, g.blobs, g.results, g.waiter = g.set[:0], g.blobs[:0], nil, waiter{}
	c.gets.Put(g)
}
