package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// otherKeys are the keys of other nodes that begin with a prefix, in order.
type otherKeys struct {
	d         *Daemon
	by        objects.Caller
	prefix    string
	published bool
	each      func(adminapi.Key) error

	// page are the next ones, after the last that was asked for.
	page  []keyindex.Place
	after string
	begun bool
	over  bool
	// unlisted tells why keys are missing from the list; nil if none are.
	unlisted error
}

func (k keyed) otherKeys(by objects.Caller, prefix string, published bool, each func(adminapi.Key) error) *otherKeys {
	return &otherKeys{
		d: k.d, by: by, prefix: prefix, published: published, each: each,
		after: prefix, over: k.d.otherNodes() == nil,
	}
}

// upTo hands out those before a key of this node. One that both have is this
// node's.
func (o *otherKeys) upTo(ctx context.Context, key string) error {
	for o.more(ctx) && o.page[0].Key <= key {
		next := o.page[0]
		o.page = o.page[1:]
		if next.Key == key {
			continue
		}
		if err := o.hand(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

// behind hands out the rest. Keys that can't be listed are its error.
func (o *otherKeys) behind(ctx context.Context, last string) error {
	for o.more(ctx) {
		next := o.page[0]
		o.page = o.page[1:]
		if next.Key == last {
			continue
		}
		if err := o.hand(ctx, next); err != nil {
			return err
		}
	}
	return o.unlisted
}

// hand hands one out. A node that can't be asked has its keys all the same.
func (o *otherKeys) hand(ctx context.Context, at keyindex.Place) error {
	line := adminapi.Key{Key: at.Key, Node: string(at.Node)}
	known, err := o.d.otherNodes().KeyInfo(ctx, o.by, at.Key, o.published)
	if errors.Is(err, cluster.ErrUnreachable) {
		line.State = "unreachable"
		return o.each(line)
	}
	return handOut(line, known, err, o.each)
}

// more says whether there is another one.
func (o *otherKeys) more(ctx context.Context) bool {
	if len(o.page) > 0 || o.over {
		return len(o.page) > 0
	}
	if !o.begun && o.prefix != "" {
		o.begun = true
		// The list is of what comes behind a key.
		o.page, o.unlisted = o.exactly(ctx)
		if len(o.page) > 0 {
			return true
		}
	}
	o.begun = true
	page, err := o.d.otherNodes().Places(ctx, o.published, o.after, keysAtOnce)
	if err != nil {
		o.unlisted = fmt.Errorf("list the keys of other nodes: %w", err)
	}
	o.over = len(page) < keysAtOnce
	for _, at := range page {
		if !strings.HasPrefix(at.Key, o.prefix) {
			o.over = true
			break
		}
		o.page, o.after = append(o.page, at), at.Key
	}
	return len(o.page) > 0
}

// exactly is the key that is the prefix itself.
func (o *otherKeys) exactly(ctx context.Context) ([]keyindex.Place, error) {
	if metadata.ValidKey(o.prefix) != nil {
		return nil, nil
	}
	at, err := o.d.otherNodes().KeyPlace(ctx, o.published, o.prefix)
	if errors.Is(err, metadata.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []keyindex.Place{at}, nil
}
