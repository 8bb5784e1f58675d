package local

import (
	"context"
	"slices"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// MSetD2H gathers the blobs of each key into one object in host memory.
func (c *Client) MSetD2H(ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.SetOptions) (hetero.Results, error) {
	set, err := c.gather(keys, lists, o)
	if err != nil {
		return nil, err
	}
	return c.do(ctx, set)
}

// gather checks an MSetD2H and returns a function that executes it.
func (c *Client) gather(keys []string, lists []hetero.DeviceBlobList, o hetero.SetOptions) (func(context.Context) hetero.Results, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	set, err := c.checked(keys, lists, false)
	if err != nil {
		return nil, err
	}
	return func(call context.Context) hetero.Results {
		options := objects.GatherOptions{Existing: existingRule(o.Existing), Expires: expiry(o.TTL)}
		done := c.keys.Gather(call, c.holder, set, options)
		out := make(hetero.Results, len(keys))
		for i, key := range keys {
			out[i] = hetero.Result{Key: key, Err: c.failure(done[i].Err), Skipped: done[i].Skipped}
		}
		return out
	}, nil
}

func existingRule(e hetero.Existing) objects.ExistingRule {
	switch e {
	case hetero.ExistingReplace:
		return objects.ExistingReplace
	case hetero.ExistingFail:
		return objects.ExistingFail
	default:
		return objects.ExistingSkip
	}
}

// MGetH2D scatters objects into blobs of the same number and exact sizes.
func (c *Client) MGetH2D(ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
	return c.read(ctx, keys, lists, o, true)
}

// AsyncMSetD2H is MSetD2H in the background.
func (c *Client) AsyncMSetD2H(ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.SetOptions) (*hetero.Batch, error) {
	keys = slices.Clone(keys)
	set, err := c.gather(keys, lists, o)
	if err != nil {
		return nil, err
	}
	return c.batch(ctx, len(keys), set)
}

// AsyncMGetH2D is MGetH2D in the background.
func (c *Client) AsyncMGetH2D(ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions) (*hetero.Batch, error) {
	keys = slices.Clone(keys)
	o.Into = nil
	g, err := c.scatter(keys, lists, o, true)
	if err != nil {
		return nil, err
	}
	return c.batch(ctx, len(keys), g.run)
}

// AsyncDevDelete is DevDelete in the background.
func (c *Client) AsyncDevDelete(ctx context.Context, keys []string) (*hetero.Batch, error) {
	keys = slices.Clone(keys)
	if err := hetero.CheckKeys(keys); err != nil {
		return nil, err
	}
	return c.batch(ctx, len(keys), func(call context.Context) hetero.Results {
		return c.results(keys, c.keys.Drop(call, c.holder, keys))
	})
}
