package local

import (
	"context"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// DevMSet binds keys to blobs.
func (c *Client) DevMSet(ctx context.Context, keys []string, lists []hetero.DeviceBlobList) (hetero.Results, error) {
	set, err := c.checked(keys, lists, false)
	if err != nil {
		return nil, err
	}
	return c.do(ctx, func(call context.Context) hetero.Results {
		return c.results(keys, c.holder.Bind(call, set))
	})
}

// checked checks the keys and lists of a call, and resolves their memory.
func (c *Client) checked(keys []string, lists []hetero.DeviceBlobList, partial bool) ([]objects.Keyed, error) {
	if err := hetero.CheckLists(keys, lists, partial); err != nil {
		return nil, err
	}
	return c.keyed(keys, lists)
}

// DevMGet copies the bytes of keys into blobs.
func (c *Client) DevMGet(ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions) (hetero.Results, error) {
	return c.read(ctx, keys, lists, o, false)
}

// DevDelete removes keys with all their replicas.
func (c *Client) DevDelete(ctx context.Context, keys []string) (hetero.Results, error) {
	return c.remove(ctx, keys, func(ctx context.Context, keys []string) []error { return c.keys.Drop(ctx, c.holder, keys) })
}

// DevLocalDelete removes this client's part of keys.
func (c *Client) DevLocalDelete(ctx context.Context, keys []string) (hetero.Results, error) {
	return c.remove(ctx, keys, c.holder.DropLocal)
}

// Delete is DevDelete.
func (c *Client) Delete(ctx context.Context, keys []string) (hetero.Results, error) {
	return c.DevDelete(ctx, keys)
}

func (c *Client) remove(ctx context.Context, keys []string, drop func(context.Context, []string) []error) (hetero.Results, error) {
	if err := hetero.CheckKeys(keys); err != nil {
		return nil, err
	}
	return c.do(ctx, func(call context.Context) hetero.Results { return c.results(keys, drop(call, keys)) })
}
