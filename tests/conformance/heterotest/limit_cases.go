package heterotest

import (
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// limitCases returns the cases at the limits of a call, and beyond.
func limitCases() []testCase {
	return []testCase{
		{"B7 too many keys", checkTooManyKeys},
		{"B7 the most keys are set", checkMostSet},
		{"B7 the most keys are published", checkMostPublished},
		{"the longest key", checkLongestKey},
		{"options that can't be", checkBadOptions},
	}
}

// tiny returns a buffer of n blobs of one byte, with gaps.
func (u *user) tiny(n int) *buffer {
	u.env.Helper()
	return u.buffer(u.env.near(), same(n, shape{1})...)
}

// most returns the number of keys of a call: in a short run a fifth of the maximum, for which the
// records also need more than one transaction.
func most() int {
	if testing.Short() {
		return hetero.MaxKeys / 5
	}
	return hetero.MaxKeys
}

func checkTooManyKeys(e *env) {
	u := e.user()
	keys := e.keys("k", hetero.MaxKeys+1)
	lists := make([]hetero.DeviceBlobList, len(keys))
	one := u.tiny(1)
	for i := range lists {
		lists[i] = one.lists[0]
	}
	u.refusesAll("too many keys", keys, lists)
	u.refusesKeys("too many keys", keys)
	u.exist(keys[:hetero.MaxKeys], false)
	// With the maximum number, each is checked.
	lists[hetero.MaxKeys-1].Device = "-1"
	u.refusesAll("the most keys, and one wrong device", keys[:hetero.MaxKeys], lists[:hetero.MaxKeys])
}

func checkMostSet(e *env) {
	u, reader := e.user(), e.user()
	keys := e.keys("k", most())
	from, into := u.tiny(len(keys)), reader.tiny(len(keys))
	get := e.start(func() (hetero.Results, error) {
		return reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{Timeout: e.long()})
	})
	u.set(keys, from)
	r, err := get.wait()
	e.done(keys, r, err)
	into.takeAll(from)
	u.exist(keys, true)
	u.drop(keys)
	u.exist(keys, false)
}

func checkMostPublished(e *env) {
	u, reader := e.user(), e.user()
	keys := e.keys("k", most())
	from, into := u.tiny(len(keys)), reader.tiny(len(keys))
	given := u.publish(keys, from)
	reader.receive(keys, into, from)
	e.awaitAll(keys, given, nil)
}

func checkLongestKey(e *env) {
	u := e.user()
	key := []string{e.prefix + strings.Repeat("k", hetero.MaxKeyLen-len(e.prefix))}
	from, into := u.buffer(e.near(), shape{70}), u.buffer(e.far(), shape{70})
	u.set(key, from)
	u.get(key, into, from)
	u.drop(key)
	u.store(key, from, hetero.SetOptions{})
	into.fill()
	u.load(key, into, from)
	given := u.publish(key, from)
	u.receive(key, into, from)
	e.awaitAll(key, given, nil)
	long := []string{key[0] + "k"}
	u.refusesAll("a key too long", long, from.lists)
	u.refusesKeys("a key too long", long)
}

func checkBadOptions(e *env) {
	u, ctx := e.user(), e.Context()
	keys, lists := e.keys("k", 1), u.buffer(e.near(), shape{7}).lists
	for _, o := range []hetero.SetOptions{{Existing: "perhaps"}, {TTL: -time.Second}, {TTL: time.Millisecond}} {
		r, err := u.MSetD2H(ctx, keys, lists, o)
		e.refused("MSetD2H", r, err, hetero.ErrInvalid)
		b, err := u.AsyncMSetD2H(ctx, keys, lists, o)
		e.refused("AsyncMSetD2H", b, err, hetero.ErrInvalid)
	}
	for _, timeout := range []time.Duration{-1, hetero.MaxTimeout + 1} {
		o := hetero.GetOptions{Timeout: timeout}
		r, err := u.DevMGet(ctx, keys, lists, o)
		e.refused("DevMGet", r, err, hetero.ErrInvalid)
		r, err = u.MGetH2D(ctx, keys, lists, o)
		e.refused("MGetH2D", r, err, hetero.ErrInvalid)
		r, err = u.Wait(ctx, keys, false, timeout)
		e.refused("Wait", r, err, hetero.ErrInvalid)
		f, err := u.DevSubscribe(ctx, keys, lists, hetero.SubscribeOptions{Timeout: timeout})
		e.refused("DevSubscribe", f, err, hetero.ErrInvalid)
	}
	r, err := u.MGetH2D(ctx, keys, lists, hetero.GetOptions{Replica: true})
	e.refused("MGetH2D that makes a replica", r, err, hetero.ErrInvalid)
	r, err = u.Expire(ctx, keys, -time.Second)
	e.refused("Expire", r, err, hetero.ErrInvalid)
	for what, m := range map[string]hetero.Memory{
		"nothing": {}, "a device alone": {Device: e.near()},
	} {
		if id, err := u.PreRegister(ctx, m); !isErr(err, hetero.ErrInvalid) || id != 0 {
			e.Errorf("memory that is %s: %d, %v", what, id, err)
		}
	}
	if err := u.Unregister(ctx, 12345); !isErr(err, hetero.ErrNotFound) {
		e.Errorf("memory that nobody registered: %v", err)
	}
	u.exist(keys, false)
}
