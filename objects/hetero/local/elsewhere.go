package local

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// Elsewhere is the keys of other machines; a *cluster.Cluster is one. Its
// methods do with a key there what those of objects.Holder do with one here,
// for the holder's user. A key that is nowhere is metadata.ErrNotExist; one that
// a node may have which can't be asked is *cluster.UnaskedError.
type Elsewhere interface {
	KeyInfo(ctx context.Context, who objects.Caller, key string, published bool) (objects.KeyInfo, error)
	ScatterKey(ctx context.Context, h *objects.Holder, sc objects.Scatter) error
	ReceiveKey(ctx context.Context, h *objects.Holder, k objects.Keyed) error
	ClaimKey(ctx context.Context, h *objects.Holder, key string, wait bool) (objects.Reservation, error)
	DropKey(ctx context.Context, who objects.Caller, key string) error
	ExpireKey(ctx context.Context, who objects.Caller, key string, at metadata.Timespec) error
	// WatchKeys has came called when one of the keys may have come; stop ends
	// that.
	WatchKeys(ctx context.Context, published bool, keys []string, came func(key string)) (stop func())
}

// orElsewhere is what became of a key here, or for one that is not here, there.
func (c *Client) orElsewhere(err error, there func(Elsewhere) error) error {
	if c.elsewhere == nil || !missing(err) && !errors.Is(err, objects.ErrLost) {
		return err
	}
	if failure := there(c.elsewhere); !missing(failure) {
		return failure
	}
	return err
}

// scatter copies the bytes of a key, wherever it is.
func (c *Client) scatter(ctx context.Context, sc objects.Scatter) error {
	return c.orElsewhere(c.holder.Scatter(ctx, sc), func(e Elsewhere) error { return e.ScatterKey(ctx, c.holder, sc) })
}

// info looks a key or a publication up, wherever it is.
func (c *Client) info(ctx context.Context, key string, published bool) (objects.KeyInfo, error) {
	info, err := c.infoHere(ctx, key, published)
	if err == nil && info.Attr.State == objects.StateLost {
		err = objects.ErrLost // which gives way to one that is not
	}
	known := info
	err = c.orElsewhere(err, func(e Elsewhere) (failure error) {
		info, failure = e.KeyInfo(ctx, c.holder.Caller(), key, published)
		return failure
	})
	if known.Attr.State == objects.StateLost && errors.Is(err, objects.ErrLost) {
		return known, nil
	}
	return info, err
}

func (c *Client) infoHere(ctx context.Context, key string, published bool) (objects.KeyInfo, error) {
	if published {
		return c.holder.PublicationInfo(ctx, key)
	}
	return c.holder.KeyInfo(ctx, key)
}

// expire sets when a key ends, wherever it is.
func (c *Client) expire(ctx context.Context, key string, at metadata.Timespec) error {
	err := c.holder.Expire(ctx, key, at)
	if !missing(err) {
		return err
	}
	return c.orElsewhere(err, func(e Elsewhere) error { return e.ExpireKey(ctx, c.holder.Caller(), key, at) })
}

// drop removes keys, wherever they are.
func (c *Client) drop(ctx context.Context, keys []string) []error {
	if c.elsewhere == nil {
		return c.holder.Drop(ctx, keys)
	}
	// A key whose object is lost here may have been set elsewhere since.
	var away []int
	for i, key := range keys {
		if there, err := c.store.KeyThere(ctx, key); err == nil && !there {
			away = append(away, i)
		}
	}
	errs := c.holder.Drop(ctx, keys)
	atOnce(len(away), func(n int) {
		if i := away[n]; errs[i] == nil {
			errs[i] = c.elsewhere.DropKey(ctx, c.holder.Caller(), keys[i])
		}
	})
	return errs
}

// replace makes room for keys that other machines have, and sets them again.
func (c *Client) replace(ctx context.Context, set []objects.Keyed, o objects.GatherOptions, done []objects.Gathered) {
	if c.elsewhere == nil || o.Existing != objects.ExistingReplace {
		return
	}
	var again []int
	for i := range done {
		if errors.Is(done[i].Err, metadata.ErrExist) {
			again = append(again, i)
		}
	}
	if len(again) == 0 {
		return
	}
	failures := make([]error, len(again))
	atOnce(len(again), func(n int) {
		failures[n] = c.elsewhere.DropKey(ctx, c.holder.Caller(), set[again[n]].Key)
	})
	var rest []objects.Keyed
	var places []int
	for n, i := range again {
		if failures[n] != nil {
			done[i].Err = failures[n]
			continue
		}
		rest, places = append(rest, set[i]), append(places, i)
	}
	for n, one := range c.holder.Gather(ctx, rest, o) {
		done[places[n]] = one
	}
}

// atOnce does something for each of n, a few at a time.
func atOnce(n int, do func(i int)) {
	var next atomic.Int64
	var work sync.WaitGroup
	for range min(n, workers) {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	work.Wait()
}
