package cluster

import "context"

// Key finds a key of another node: which one, and the path of its object there
// ("cuda0/a").
//
// Errors: metadata.ErrNotExist; ErrUnreachable.
func (c *Cluster) Key(context.Context, string) (*Node, string, error) { return nil, "", ErrNoNode }

// Keys lists the keys of other nodes behind one, in order.
func (c *Cluster) Keys(ctx context.Context, after string, limit int) ([]string, error) {
	_, _, _ = ctx, after, limit
	return nil, nil
}
