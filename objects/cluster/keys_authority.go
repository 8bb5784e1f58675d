package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// leaveWait bounds the wait for a key that another node is releasing.
const leaveWait = time.Second

var _ objects.KeyAuthority = (*keys)(nil)

// Claim claims keys in the index, or by asking the peers if there is no index, or it does not
// answer; see objects.KeyAuthority. A node that no longer uses a key releases it in the
// background: a caller that has observed the key's removal there must be able to set it here,
// so Claim waits for that.
//
// Errors, of each: *keyindex.TakenError; *UnaskedError.
func (k *keys) Claim(ctx context.Context, in objects.KeySpace, names []string) []error {
	s := spaceOf(in == objects.SpacePublish)
	if k.index == nil {
		return k.peers.Claim(ctx, s, names) // the asked nodes know what they are releasing
	}
	errs := k.claim(ctx, s, names)
	waiting, stop := context.WithTimeout(ctx, leaveWait)
	defer stop()
	for wait := lookFirst; waiting.Err() == nil; wait *= 2 {
		again := k.leaving(waiting, s, names, errs)
		if len(again) == 0 {
			break
		}
		pause(waiting, wait)
		for n, err := range k.claim(ctx, s, pick(names, again)) {
			errs[again[n]] = err
		}
	}
	return errs
}

// pick returns the names at places.
func pick(names []string, places []int) []string {
	some := make([]string, len(places))
	for n, i := range places {
		some[n] = names[i]
	}
	return some
}

// claim asks the index, and where that is unavailable all nodes. Keys that the nodes grant are
// entered in the index once it is back.
func (k *keys) claim(ctx context.Context, s keyindex.Space, names []string) []error {
	errs := k.index.Claim(ctx, s, names)
	var unasked []int
	for i, err := range errs {
		switch {
		case isAway(err):
			unasked = append(unasked, i)
		case err == nil:
			errs[i] = k.redeem(ctx, spaceKey{s, names[i]})
		}
	}
	var granted []string
	for n, err := range k.peers.Claim(ctx, s, pick(names, unasked)) {
		if errs[unasked[n]] = err; err == nil {
			granted = append(granted, names[unasked[n]])
		}
	}
	k.index.Have(s, granted)
	return errs
}

// redeem asks the nodes that were told that a key is free whether they use it.
//
// Errors: *keyindex.TakenError; *UnaskedError.
func (k *keys) redeem(ctx context.Context, at spaceKey) error {
	for _, to := range k.peers.promisedTo(at) {
		used, err := k.usedBy(ctx, to, k.peers.claimOf(at.space, []string{at.key}))
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("key %q: %w", at.key, &UnaskedError{Nodes: []members.Name{to}, Cause: err, wayOut: k.peers.wayOut()})
		case used[0]:
			return &keyindex.TakenError{Key: at.key, Node: to}
		}
		k.peers.redeem(at, to)
	}
	return nil
}

// usedBy asks a node which keys it uses. A node that has left uses none: its keys have ended
// with it.
func (k *keys) usedBy(ctx context.Context, name members.Name, q proto.HaveKeysAsk) ([]bool, error) {
	n, err := k.c.Node(name)
	if err != nil {
		return make([]bool, len(q.Keys)), nil
	}
	return n.haveKeys(ctx, q)
}

// leaving returns the indices of the names that the nodes having them no longer use.
func (k *keys) leaving(ctx context.Context, s keyindex.Space, names []string, errs []error) (which []int) {
	by := map[members.Name][]int{}
	for i, err := range errs {
		if taken, is := errors.AsType[*keyindex.TakenError](err); is {
			by[taken.Node] = append(by[taken.Node], i)
		}
	}
	for node, places := range by {
		n, err := k.c.Node(node)
		if err != nil {
			continue
		}
		// The keys of a node that can't be asked are not leaving.
		_ = n.haveAll(ctx, k.peers.claimOf(s, pick(names, places)), func(i int, has bool) {
			if !has {
				which = append(which, places[i])
			}
		})
	}
	return which
}

// Have records keys that are visible; see objects.KeyAuthority.
func (k *keys) Have(in objects.KeySpace, names []string) {
	s := spaceOf(in == objects.SpacePublish)
	if k.index == nil {
		k.peers.Have(s, names)
		return
	}
	k.index.Have(s, names)
}

// Release releases keys; see objects.KeyAuthority.
func (k *keys) Release(in objects.KeySpace, names []string) {
	s := spaceOf(in == objects.SpacePublish)
	k.peers.Release(s, names)
	if k.index != nil {
		k.index.Release(s, names)
	}
}
