package local

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// Exist reports for each key whether it names an object whose bytes are available. For an
// object that the caller may not read it reveals no more than the existence of its name, which
// keys/ shows anyway.
func (c *Client) Exist(ctx context.Context, keys []string) ([]bool, error) {
	if err := hetero.CheckKeys(keys); err != nil {
		return nil, err
	}
	call, begun, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer begun.leave()
	out, errs := make([]bool, len(keys)), make([]error, len(keys))
	c.eachKey(call, len(keys), func(i int) { errs[i] = c.there(call, keys[i], false) })
	for i, err := range errs {
		out[i] = err == nil || errors.Is(err, objects.ErrForbidden)
		if !out[i] && !missing(err) {
			return nil, c.failure(err)
		}
	}
	return out, nil
}

// eachKey calls look for n keys: sequentially if all are local, and a few at a time if other
// nodes may have to be asked.
func (c *Client) eachKey(ctx context.Context, n int, look func(i int)) {
	atOnce := 1
	if c.keys.CanWait() {
		atOnce = workers
	}
	_ = objects.Parallel(ctx, n, atOnce, func(_ context.Context, i int) error {
		look(i)
		return nil // each key has its own error
	})
}

// there fails unless a key names an object, or a publication, whose bytes are available.
func (c *Client) there(ctx context.Context, key string, published bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := c.keys.Info(ctx, c.holder, key, published)
	if err == nil && info.Attr.State == objects.StateLost || errors.Is(err, objects.ErrLost) {
		return metadata.ErrNotExist
	}
	return err
}

// GetMetaInfo returns the blobs of keys, or of publications.
func (c *Client) GetMetaInfo(ctx context.Context, keys []string, published bool) ([]hetero.MetaInfo, error) {
	if err := hetero.CheckKeys(keys); err != nil {
		return nil, err
	}
	call, begun, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer begun.leave()
	out, told := make([]hetero.MetaInfo, len(keys)), make(hetero.Results, len(keys))
	c.eachKey(call, len(keys), func(i int) { out[i] = c.metaInfo(call, keys[i], published) })
	for i, key := range keys {
		told[i] = hetero.Result{Key: key, Err: out[i].Err}
	}
	return out, told.Outcome()
}

func (c *Client) metaInfo(ctx context.Context, key string, published bool) hetero.MetaInfo {
	err := ctx.Err()
	var info objects.KeyInfo
	if err == nil {
		info, err = c.keys.Info(ctx, c.holder, key, published)
	}
	if err != nil {
		return hetero.MetaInfo{Key: key, Err: c.failure(err)}
	}
	out := hetero.MetaInfo{
		Key: key, Device: devices.Name(info.Attr.Device), Size: devices.Size(info.Attr.Size),
		Blobs: make([]devices.Size, len(info.Blobs)),
	}
	for i, size := range info.Blobs {
		out.Blobs[i] = devices.Size(size)
	}
	return out
}

// GenerateKey returns prefix, or if it is empty a random UUID.
func (c *Client) GenerateKey(prefix string) (string, error) { return hetero.GenerateKey(prefix) }

// Expire sets the time to live of keys, starting now.
func (c *Client) Expire(ctx context.Context, keys []string, ttl time.Duration) (hetero.Results, error) {
	if err := errors.Join(hetero.CheckKeys(keys), hetero.CheckTTL(ttl)); err != nil {
		return nil, err
	}
	return c.do(ctx, func(call context.Context) hetero.Results {
		at := expiry(ttl)
		errs := make([]error, len(keys))
		c.eachKey(call, len(keys), func(i int) {
			if errs[i] = call.Err(); errs[i] == nil {
				errs[i] = c.keys.Expire(call, c.holder, keys[i], at)
			}
		})
		return c.results(keys, errs)
	})
}

// expiry returns the end of a time to live that starts now; zero for 0, which means forever.
func expiry(ttl time.Duration) metadata.Timespec {
	if ttl == 0 {
		return metadata.Timespec{}
	}
	return metadata.TimespecOf(time.Now().Add(ttl))
}

// Each reports each key when it exists, or the time is over.
func (c *Client) Each(
	ctx context.Context, keys []string, published bool, timeout time.Duration, came func(i int, err error),
) error {
	if err := errors.Join(hetero.CheckKeys(keys), hetero.CheckTimeout(timeout)); err != nil {
		return err
	}
	call, begun, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer begun.leave()
	var one sync.Mutex
	c.carryOut(call, plan{
		keys: keys, published: published, timeout: timeout, late: hetero.ErrTimeout,
		try: func(ctx context.Context, i int) error { return c.there(ctx, keys[i], published) },
	}, func(i int, err error) {
		one.Lock()
		defer one.Unlock()
		came(i, err)
	})
	return nil
}

// Wait returns when all keys exist, or the time is over.
func (c *Client) Wait(ctx context.Context, keys []string, published bool, timeout time.Duration) (hetero.Results, error) {
	out := make(hetero.Results, len(keys))
	err := c.Each(ctx, keys, published, timeout, func(i int, err error) { out[i] = hetero.Result{Key: keys[i], Err: err} })
	if err != nil {
		return nil, err
	}
	return out, out.Outcome()
}

// do executes a call on keys whose arguments are checked.
func (c *Client) do(ctx context.Context, call func(context.Context) hetero.Results) (hetero.Results, error) {
	ctx, begun, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer begun.leave()
	results := call(ctx)
	return results, results.Outcome()
}
