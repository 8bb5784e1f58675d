package local

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// get is a DevMGet or MGetH2D. Its memory is used again by later ones.
type get struct {
	waiter

	blobs   []objects.Blob
	set     []objects.Scatter
	results hetero.Results
	// run executes it. try and done are those of the waiter; all three are made once.
	run  func(context.Context) hetero.Results
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
			Offset: uint64(lists[i].SourceOffset), Exact: exact, Replica: o.Replica,
		})
		at = end
	}
	g.results = make(hetero.Results, len(keys))
	g.plan = plan{keys: keys, timeout: o.Timeout, late: hetero.ErrNotFound, try: g.try}
	return g, nil
}

func (c *Client) newGet() *get {
	if g, ok := c.gets.Get().(*get); ok {
		return g
	}
	g := &get{}
	g.try = func(ctx context.Context, i int) error { return c.keys.Scatter(ctx, c.holder, g.set[i]) }
	g.done = func(i int, err error) { g.results[i] = hetero.Result{Key: g.plan.keys[i], Err: err} }
	g.run = func(ctx context.Context) hetero.Results {
		g.client, g.waiter.done = c, g.done
		g.carryOut(ctx)
		results := g.results
		// What has waited may still be told of keys.
		if g.plan.timeout == 0 && len(g.set) <= longestGet && len(g.blobs) <= longestGet {
			clear(g.set)
			clear(g.blobs)
			g.set, g.blobs, g.results, g.waiter = g.set[:0], g.blobs[:0], nil, waiter{}
			c.gets.Put(g)
		}
		return results
	}
	return g
}
