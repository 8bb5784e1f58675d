package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/hetero/local"
)

// keyed gives users of the admin socket clients of heterogeneous objects.
type keyed struct{ d *Daemon }

var _ admin.Keyed = keyed{}

// Begin returns a new client for a user.
func (k keyed) Begin(by objects.Caller, session string) (hetero.Client, error) {
	return local.New(local.Options{
		Store: k.d.store, Session: session, Caller: by, Keys: k.d.keys(), Inode: k.d.shownFile, Refusals: &k.d.clientRefusals,
	}), nil
}

// Listen subscribes to the events that a user may see.
func (k keyed) Listen(by objects.Caller) admin.EventQueue {
	return &visibleEvents{queue: k.d.store.Listen(), by: by}
}

// visibleEvents is a queue of the events that a user may see.
type visibleEvents struct {
	queue *objects.Events
	by    objects.Caller
}

// Next waits for the next event.
func (h *visibleEvents) Next(ctx context.Context) (objects.Event, error) {
	for {
		e, err := h.queue.Next(ctx)
		if err != nil || e.MayRead(h.by) {
			return e, err
		}
	}
}

// Close ends the queue.
func (h *visibleEvents) Close() { h.queue.Close() }

// keys returns the keys of all nodes.
func (d *Daemon) keys() objects.Keys { return cluster.NewKeys(d.store, d.otherNodes()) }

// keysAtOnce is the number of keys that one step of a listing fetches.
const keysAtOnce = 512

// Keys passes each key that begins with a prefix, or each publication, of this and other
// nodes to each, in order. Nodes that cannot list theirs are in its error, which comes
// after all keys.
func (k keyed) Keys(ctx context.Context, by objects.Caller, asked adminapi.KeysRequest, each func(adminapi.Key) error) error {
	h := k.d.store.NewHolder(by)
	return errors.Join(k.list(ctx, h, asked, each), h.Close(ctx))
}

func (k keyed) list(ctx context.Context, h *objects.Holder, asked adminapi.KeysRequest, each func(adminapi.Key) error) error {
	var unlisted error
	prefix, published := asked.Prefix, asked.Published
	begin := objects.KeyRange{Published: published, From: prefix, Inclusive: true, Limit: keysAtOnce}
	if asked.After >= prefix && asked.After != "" {
		begin.From, begin.Inclusive = asked.After, false
	}
	for r := begin; ; r.Inclusive = false {
		page, err := k.d.keys().List(ctx, r)
		switch {
		case err != nil && page == nil:
			return err
		case err != nil:
			unlisted = fmt.Errorf("list the keys of other nodes: %w", err)
		}
		for _, e := range page {
			if !strings.HasPrefix(e.Key, prefix) {
				return unlisted
			}
			if err = k.handOut(ctx, h, e, published, each); err != nil {
				return err
			}
			r.From = e.Key
		}
		if len(page) < r.Limit {
			return unlisted
		}
	}
}

// handOut passes a key with its details to each, unless the key was removed since it was
// listed. Keys of a node that does not answer are passed too.
func (k keyed) handOut(ctx context.Context, h *objects.Holder, e objects.KeyEntry, published bool, each func(adminapi.Key) error) error {
	var known objects.KeyInfo
	var err error
	if e.Node == "" {
		known, err = objects.LocalKeys{Store: k.d.store}.Info(ctx, h, e.Key, published)
	} else {
		known, err = k.d.otherNodes().KeyInfo(ctx, h.Caller(), e.Key, published)
	}
	line := adminapi.Key{Key: e.Key, Node: e.Node}
	switch {
	case errors.Is(err, metadata.ErrNotExist):
		return nil
	case errors.Is(err, objects.ErrForbidden), errors.Is(err, cluster.ErrDenied):
		line.Hidden = true
		return each(line)
	case e.Node != "" && errors.Is(err, cluster.ErrUnreachable):
		line.State = "unreachable"
		return each(line)
	case err != nil:
		return err
	}
	a := known.Attr
	line.Ino, line.Device, line.Size, line.State = a.Ino, devices.Name(a.Device), devices.Size(a.Size), string(a.State)
	for _, n := range known.Blobs {
		line.Blobs = append(line.Blobs, devices.Size(n))
	}
	return each(line)
}
