package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// KeyMesh combines the keys of this node and of all others: a key is looked up locally first,
// and at other nodes if it is missing here, or its bytes are lost.
type KeyMesh struct {
	objects.LocalKeys

	Others *Cluster
}

var _ objects.Keys = KeyMesh{}

// NewKeys returns the keys of a store and of all other nodes; others is nil for a single node.
func NewKeys(store *objects.Store, others *Cluster) objects.Keys {
	own := objects.LocalKeys{Store: store}
	if others == nil {
		return own
	}
	return KeyMesh{own, others}
}

// keysAtOnce bounds the keys of one call that are requested from other nodes at one time.
const keysAtOnce = 8

// CanWait implements objects.Keys.
func (KeyMesh) CanWait() bool { return true }

// isMissing reports whether a key does not exist here.
func isMissing(err error) bool { return errors.Is(err, metadata.ErrNotExist) }

// orThere returns the result of an operation on a key here or, if the key is missing here, at
// another node; with orLost also if its bytes are lost here. If the key is missing there too, the
// local error is returned.
func orThere(err error, orLost bool, there func() error) error {
	if !isMissing(err) && (!orLost || !errors.Is(err, objects.ErrLost)) {
		return err
	}
	if failure := there(); !isMissing(failure) {
		return failure
	}
	return err
}

// Info implements objects.Keys. An object that is lost here yields to one that is not.
func (m KeyMesh) Info(ctx context.Context, h *objects.Holder, key string, published bool) (objects.KeyInfo, error) {
	info, err := m.LocalKeys.Info(ctx, h, key, published)
	own, lost := info, err == nil && info.Attr.State == objects.StateLost
	if lost {
		err = objects.ErrLost
	}
	err = orThere(err, true, func() (failure error) {
		info, failure = m.Others.KeyInfo(ctx, h.Caller(), key, published)
		return failure
	})
	if lost && errors.Is(err, objects.ErrLost) {
		return own, nil
	}
	return info, err
}

// Scatter implements objects.Keys.
func (m KeyMesh) Scatter(ctx context.Context, h *objects.Holder, sc objects.Scatter) error {
	return orThere(h.Scatter(ctx, sc), true, func() error { return m.Others.ScatterKey(ctx, h, sc) })
}

// Receive implements objects.Keys.
func (m KeyMesh) Receive(ctx context.Context, h *objects.Holder, k objects.Keyed) error {
	return orThere(h.Receive(ctx, k), false, func() error { return m.Others.ReceiveKey(ctx, h, k) })
}

// Received implements objects.Keys.
func (m KeyMesh) Received(ctx context.Context, h *objects.Holder, key string) (bool, error) {
	if h.Received(ctx, key) {
		return true, nil
	}
	return m.Others.ReceivedKey(ctx, h, key)
}

// Claim implements objects.Keys.
func (m KeyMesh) Claim(ctx context.Context, h *objects.Holder, key string, wait bool) (r objects.Reservation, err error) {
	r, err = m.LocalKeys.Claim(ctx, h, key, wait)
	err = orThere(err, false, func() (failure error) {
		r, failure = m.Others.ClaimKey(ctx, h, key, wait)
		return failure
	})
	return r, err
}

// Expire implements objects.Keys.
func (m KeyMesh) Expire(ctx context.Context, h *objects.Holder, key string, at metadata.Timespec) error {
	return orThere(h.Expire(ctx, key, at), false, func() error { return m.Others.ExpireKey(ctx, h.Caller(), key, at) })
}

// Drop implements objects.Keys.
func (m KeyMesh) Drop(ctx context.Context, h *objects.Holder, keys []string) []error {
	// A key whose object is lost here may since have been set at another node.
	var away []int
	for i, key := range keys {
		if there, err := m.Store.KeyThere(ctx, key); err == nil && !there {
			away = append(away, i)
		}
	}
	errs := h.Drop(ctx, keys)
	_ = objects.Parallel(ctx, len(away), keysAtOnce, func(ctx context.Context, n int) error {
		if i := away[n]; errs[i] == nil {
			errs[i] = m.Others.DropKey(ctx, h.Caller(), keys[i])
		}
		return nil // each key has its own error
	})
	return errs
}

// Gather implements objects.Keys. With ExistingReplace it removes keys that other nodes have,
// and sets them again.
func (m KeyMesh) Gather(ctx context.Context, h *objects.Holder, set []objects.Keyed, o objects.GatherOptions) []objects.Gathered {
	done := h.Gather(ctx, set, o)
	if o.Existing != objects.ExistingReplace {
		return done
	}
	var again []int
	for i := range done {
		if errors.Is(done[i].Err, metadata.ErrExist) {
			again = append(again, i)
		}
	}
	_ = objects.Parallel(ctx, len(again), keysAtOnce, func(ctx context.Context, n int) error {
		i := again[n]
		done[i].Err = m.Others.DropKey(ctx, h.Caller(), set[i].Key)
		return nil // each key has its own error
	})
	var rest []objects.Keyed
	var places []int
	for _, i := range again {
		if done[i].Err == nil {
			rest, places = append(rest, set[i]), append(places, i)
		}
	}
	if len(rest) > 0 {
		for n, one := range h.Gather(ctx, rest, o) {
			done[places[n]] = one
		}
	}
	return done
}

// Watch implements objects.Keys.
func (m KeyMesh) Watch(ctx context.Context, published bool, keys []string, came func(string)) (stop func()) {
	return m.Others.WatchKeys(ctx, published, keys, came)
}

// List implements objects.Keys. A key that both this node and another one have is listed as
// this node's.
func (m KeyMesh) List(ctx context.Context, r objects.KeyRange) ([]objects.KeyEntry, error) {
	own, err := m.LocalKeys.List(ctx, r)
	if err != nil {
		return nil, err
	}
	others, err := m.listOthers(ctx, r)
	return mergeKeys(own, others, r.Limit), err
}

// listOthers lists the keys of other nodes.
func (m KeyMesh) listOthers(ctx context.Context, r objects.KeyRange) ([]objects.KeyEntry, error) {
	var out []objects.KeyEntry
	var unasked error
	if r.Inclusive && metadata.ValidKey(r.From) == nil {
		n, err := m.Others.keys.find(ctx, spaceOf(r.Published), r.From)
		switch {
		case err == nil:
			out = append(out, objects.KeyEntry{Key: r.From, Node: string(n.name)})
		case !isMissing(err):
			unasked = err
		}
	}
	places, err := m.Others.Places(ctx, r.Published, r.From, r.Limit-len(out))
	for _, at := range places {
		out = append(out, objects.KeyEntry{Key: at.Key, Node: string(at.Node)})
	}
	return out, errors.Join(err, unasked)
}

// mergeKeys merges two sorted lists, either of which may be incomplete. Of two entries with one key
// it keeps our own.
func mergeKeys(own, others []objects.KeyEntry, limit int) []objects.KeyEntry {
	merged := make([]objects.KeyEntry, 0, len(own)+len(others))
	merged = append(append(merged, own...), others...)
	slices.SortStableFunc(merged, func(a, b objects.KeyEntry) int { return cmp.Compare(a.Key, b.Key) })
	merged = slices.CompactFunc(merged, func(a, b objects.KeyEntry) bool { return a.Key == b.Key })
	return merged[:min(len(merged), limit)]
}
