package daemon

import (
	"context"
	"errors"
	"slices"
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

// keyed lets users of the admin socket have clients of heterogeneous objects.
type keyed struct{ d *Daemon }

var _ admin.Keyed = keyed{}

// Begin begins a client for a user.
func (k keyed) Begin(by objects.Caller) (hetero.Client, error) {
	o := local.Options{Store: k.d.store, Caller: by, Inode: k.d.shownFile, Refusals: &k.d.clientRefusals}
	if others := k.d.otherNodes(); others != nil {
		o.Elsewhere = others
	}
	return local.New(o), nil
}

// Listen begins to hear what a user may hear.
func (k keyed) Listen(by objects.Caller) admin.EventQueue {
	return &heard{queue: k.d.store.Listen(), by: by}
}

// heard are the events that a user may hear.
type heard struct {
	queue *objects.Events
	by    objects.Caller
}

// Next waits for the next of them.
func (h *heard) Next(ctx context.Context) (objects.Event, error) {
	for {
		e, err := h.queue.Next(ctx)
		if err != nil || e.MayRead(h.by) {
			return e, err
		}
	}
}

// Close ends the queue.
func (h *heard) Close() { h.queue.Close() }

// Keys hands out the keys that begin with a prefix, or what is published, here
// and at other nodes, in order.
func (k keyed) Keys(ctx context.Context, by objects.Caller, prefix string, published bool, each func(adminapi.Key) error) error {
	h := k.d.store.NewHolder(by)
	names, info := k.set, h.KeyInfo
	if published {
		names, info = k.published, h.PublicationInfo
	}
	others := k.otherKeys(by, prefix, published, each)
	last := ""
	err := names(ctx, prefix, func(key string) error {
		if err := others.upTo(ctx, key); err != nil {
			return err
		}
		last = key
		known, err := info(ctx, key)
		return handOut(adminapi.Key{Key: key}, known, err, each)
	})
	if err == nil {
		err = others.behind(ctx, last)
	}
	return errors.Join(err, h.Close(ctx))
}

// handOut hands a key out with what is known of it, unless it has gone since it
// was listed.
func handOut(line adminapi.Key, known objects.KeyInfo, err error, each func(adminapi.Key) error) error {
	switch {
	case errors.Is(err, metadata.ErrNotExist):
		return nil
	case errors.Is(err, objects.ErrForbidden), errors.Is(err, cluster.ErrDenied):
		line.Hidden = true
		return each(line)
	case err != nil:
		return err
	}
	full := keyLine(line.Key, known)
	full.Node = line.Node
	return each(full)
}

func keyLine(key string, known objects.KeyInfo) adminapi.Key {
	a := known.Attr
	line := adminapi.Key{
		Key: key, Ino: a.Ino, Device: devices.Name(a.Device), Size: devices.Size(a.Size), State: string(a.State),
		Blobs: make([]devices.Size, len(known.Blobs)),
	}
	for i, n := range known.Blobs {
		line.Blobs[i] = devices.Size(n)
	}
	return line
}

// keysAtOnce is how many keys are read at once.
const keysAtOnce = 512

// set hands out the keys of objects, in order.
func (k keyed) set(ctx context.Context, prefix string, each func(string) error) error {
	if prefix != "" {
		// The list is of what comes behind a key.
		_, err := k.d.store.KeyIno(ctx, prefix)
		if err == nil {
			err = each(prefix)
		}
		if err != nil && !errors.Is(err, metadata.ErrNotExist) && !errors.Is(err, metadata.ErrInvalid) {
			return err
		}
	}
	for after := prefix; ; {
		entries, err := k.d.store.Keys(ctx, after, keysAtOnce)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Key, prefix) {
				return nil
			}
			if err = each(e.Key); err != nil {
				return err
			}
			after = e.Key
		}
		if len(entries) < keysAtOnce {
			return nil
		}
	}
}

// published hands out what is published, in order.
func (k keyed) published(ctx context.Context, prefix string, each func(string) error) error {
	var names []string
	for after := metadata.Cookie(0); ; {
		entries, err := k.d.store.ReadDir(ctx, metadata.PublishIno, after, keysAtOnce)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name, prefix) {
				names = append(names, e.Name)
			}
			after = e.Cookie
		}
		if len(entries) < keysAtOnce {
			break
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if err := each(name); err != nil {
			return err
		}
	}
	return nil
}
