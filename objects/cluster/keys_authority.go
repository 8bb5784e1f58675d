package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// leaveWait is how long is waited for a key that another node is giving up.
const leaveWait = time.Second

// authority is who the store asks: the index, or the peers.
type authority struct {
	k  *keys
	of keyindex.Index
}

var _ objects.KeyAuthority = authority{}

// Claim asks for keys; see objects.KeyAuthority. A node that does not use a key
// any more gives it up in the background: who has seen that it is gone there
// must be able to set it here, so that is waited for.
func (a authority) Claim(ctx context.Context, in objects.KeySpace, names []string) []error {
	s := spaceOf(in == objects.SpacePublish)
	errs := a.of.Claim(ctx, s, names)
	if a.k.index == nil {
		return errs // who is asked knows what he gives up
	}
	waiting, stop := context.WithTimeout(ctx, leaveWait)
	defer stop()
	for wait := lookFirst; waiting.Err() == nil; wait *= 2 {
		again := a.leaving(waiting, s, errs)
		if len(again) == 0 {
			break
		}
		pause(waiting, wait)
		some := make([]string, len(again))
		for n, i := range again {
			some[n] = names[i]
		}
		for n, err := range a.of.Claim(ctx, s, some) {
			errs[again[n]] = err
		}
	}
	return errs
}

// leaving are those of the keys, by place, that other nodes have no use for any
// more.
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

// Have tells of keys that are visible; see objects.KeyAuthority.
func (a authority) Have(s objects.KeySpace, names []string) {
	a.of.Have(spaceOf(s == objects.SpacePublish), names)
}

// Release gives keys up; see objects.KeyAuthority.
func (a authority) Release(s objects.KeySpace, names []string) {
	a.of.Release(spaceOf(s == objects.SpacePublish), names)
}
