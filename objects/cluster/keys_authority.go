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

// authority answers the store's claims from the index, and by asking the peers if there is no
// index, or it does not answer.
type authority struct{ k *keys }

var _ objects.KeyAuthority = authority{}

// Claim claims keys; see objects.KeyAuthority. A node that no longer uses a key releases it in
// the background: a caller that has observed the key's removal there must be able to set it
// here, so Claim waits for that.
//
// Errors, of each: *keyindex.TakenError; *UnaskedError.
func (a authority) Claim(ctx context.Context, in objects.KeySpace, names []string) []error {
	s := spaceOf(in == objects.SpacePublish)
	if a.k.index == nil {
		return a.k.peers.Claim(ctx, s, names) // the asked nodes know what they are releasing
	}
	errs := a.claim(ctx, s, names)
	waiting, stop := context.WithTimeout(ctx, leaveWait)
	defer stop()
	for wait := lookFirst; waiting.Err() == nil; wait *= 2 {
		again := a.leaving(waiting, s, errs)
		if len(again) == 0 {
			break
		}
		pause(waiting, wait)
		for n, err := range a.claim(ctx, s, pick(names, again)) {
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
func (a authority) claim(ctx context.Context, s keyindex.Space, names []string) []error {
	errs := a.k.index.Claim(ctx, s, names)
	var unasked []int
	for i, err := range errs {
		switch {
		case isAway(err):
			unasked = append(unasked, i)
		case err == nil:
			errs[i] = a.redeem(ctx, spaceKey{s, names[i]})
		}
	}
	var granted []string
	for n, err := range a.k.peers.Claim(ctx, s, pick(names, unasked)) {
		if errs[unasked[n]] = err; err == nil {
			granted = append(granted, names[unasked[n]])
		}
	}
	a.k.index.Have(s, granted)
	return errs
}

// redeem asks the nodes that were told that a key is free whether they use it.
//
// Errors: *keyindex.TakenError; *UnaskedError.
func (a authority) redeem(ctx context.Context, at spaceKey) error {
	for _, to := range a.k.peers.promisedTo(at) {
		if err := a.redeemFrom(ctx, at, to); err != nil {
			return err
		}
	}
	return nil
}

func (a authority) redeemFrom(ctx context.Context, at spaceKey, to members.Name) error {
	used, err := a.k.usedBy(ctx, to, proto.HaveKeysAsk{
		Keys: []string{at.key}, Publish: at.space == keyindex.Publish, Claim: true, Node: string(a.k.c.opts.View.Self().Name),
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("key %q: %w", at.key, &UnaskedError{Nodes: []members.Name{to}, Cause: err, wayOut: a.k.peers.wayOut()})
	case used[0]:
		return &keyindex.TakenError{Key: at.key, Node: to}
	}
	a.k.peers.redeem(at, to)
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

// leaving returns the indices of the keys that the nodes having them no longer use.
func (a authority) leaving(ctx context.Context, s keyindex.Space, errs []error) (which []int) {
	by := map[members.Name][]int{}
	for i, err := range errs {
		if taken, is := errors.AsType[*keyindex.TakenError](err); is {
			by[taken.Node] = append(by[taken.Node], i)
		}
	}
	for node, places := range by {
		n, err := a.k.c.Node(node)
		for from := 0; err == nil && from < len(places); from += proto.MaxKeys {
			part := places[from:min(from+proto.MaxKeys, len(places))]
			q := proto.HaveKeysAsk{Publish: s == keyindex.Publish, Claim: true, Node: string(a.k.c.opts.View.Self().Name)}
			for _, i := range part {
				taken, _ := errors.AsType[*keyindex.TakenError](errs[i])
				q.Keys = append(q.Keys, taken.Key)
			}
			var there []bool
			there, err = n.haveKeys(ctx, q)
			for k, is := range there {
				if !is {
					which = append(which, part[k])
				}
			}
		}
	}
	return which
}

// Have records keys that are visible; see objects.KeyAuthority.
func (a authority) Have(in objects.KeySpace, names []string) {
	s := spaceOf(in == objects.SpacePublish)
	if a.k.index == nil {
		a.k.peers.Have(s, names)
		return
	}
	a.k.index.Have(s, names)
}

// Release releases keys; see objects.KeyAuthority.
func (a authority) Release(in objects.KeySpace, names []string) {
	s := spaceOf(in == objects.SpacePublish)
	a.k.peers.Release(s, names)
	if a.k.index != nil {
		a.k.index.Release(s, names)
	}
}
