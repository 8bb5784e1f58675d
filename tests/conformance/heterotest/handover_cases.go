package heterotest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// handOverCases returns the cases of DevPublish and DevSubscribe between live clients.
func handOverCases() []testCase {
	return []testCase{
		{"B1 many keys of many sizes", checkManyKeys},
		{"B1 the subscriber comes first", checkSubscriberFirst},
		{"B2 one key after the other", checkRounds},
		{"B3 an illegal key", checkIllegalKey},
		{"B4 publish again", checkPublishAgain},
		{"B4 subscribe again", checkSubscribeAgain},
		{"B5 another shape", checkOtherShape},
		{"B6 nobody publishes", checkNobodyPublishes},
		{"B6 the missing key comes first", checkSubscribeMissingFirst},
		{"B8 the same key again", checkSameKeyAgain},
		{"two subscribers", checkTwoSubscribers},
		{"many subscribers of many keys", checkManySubscribers},
		{"a key that is set and published", checkTwoNamespaces},
		{"a future is asked early", checkFuture},
	}
}

// gone checks that nothing is published under keys.
func (u *user) gone(keys []string) {
	u.env.Helper()
	if left := u.published(keys); left != nil {
		u.env.Fatalf("still published: %v", left)
	}
}

// removed waits until nothing is published under keys: the publications of a client that was
// killed are removed one after the other, and a lost one is still a name.
func (u *user) removed(keys []string) {
	u.env.Helper()
	kit.Eventually(u.env.TB, u.env.patience, func() bool { return u.published(keys) == nil })
}

// published returns an error that names the first key under which something is published, or
// whose publication is lost.
func (u *user) published(keys []string) error {
	infos, err := u.GetMetaInfo(u.env.Context(), keys, true)
	for _, info := range infos {
		if !isErr(info.Err, hetero.ErrNotFound) {
			return fmt.Errorf("%s: %w", info.Key, cmp.Or(info.Err, errors.New("published")))
		}
	}
	if len(infos) != len(keys) {
		return fmt.Errorf("answers for %d of %d keys: %w", len(infos), len(keys), err)
	}
	return nil
}

func checkManyKeys(e *env) {
	for _, to := range e.twoDevices() {
		publisher, subscriber := e.user(), e.user()
		keys, shapes := e.keys(string(to), 50), e.shapes(50, 3, 72<<10)
		from, into := publisher.buffer(e.near(), shapes...), subscriber.buffer(to, shapes...)
		futures := publisher.publish(keys, from)
		e.pending(futures)
		subscriber.receive(keys, into, from)
		e.awaitAll(keys, futures, nil)
		subscriber.gone(keys)
	}
}

// twoDevices returns the near device and, if it is another one, the far one.
func (e *env) twoDevices() []devices.Name {
	if e.near() == e.far() {
		return []devices.Name{e.near()}
	}
	return []devices.Name{e.near(), e.far()}
}

func checkSubscriberFirst(e *env) {
	publisher, subscriber := e.user(), e.user()
	keys, shapes := e.keys("k", 6), e.shapes(6, 3, 5000)
	from, into := publisher.buffer(e.near(), shapes...), subscriber.buffer(e.far(), shapes...)
	got := subscriber.subscribe(keys, into)
	e.pending(got)
	given := publisher.publish(keys[:3], from.part(0, 3))
	e.awaitAll(keys[:3], got[:3], nil)
	e.awaitAll(keys[:3], given, nil)
	e.pending(got[3:])
	given = publisher.publish(keys[3:], from.part(3, 6))
	e.awaitAll(keys[3:], got[3:], nil)
	e.awaitAll(keys[3:], given, nil)
	into.takeAll(from)
}

func checkRounds(e *env) {
	rounds := 500
	if testing.Short() {
		rounds = 50
	}
	publisher, subscriber := e.user(), e.user()
	keys := e.keys("k", 1)
	from, into := publisher.buffer(e.near(), shape{300, 4000}), subscriber.buffer(e.far(), shape{300, 4000})
	for range rounds {
		from.fill()
		futures := publisher.publish(keys, from)
		subscriber.receive(keys, into, from)
		e.awaitAll(keys, futures, nil)
	}
}

func checkIllegalKey(e *env) {
	u := e.user()
	keys := append(e.keys("k", 2), "##&%$#")
	from := u.buffer(e.near(), e.shapes(3, 2, 100)...)
	futures, err := u.DevPublish(e.Context(), keys, from.lists)
	e.refused("publish an illegal key", futures, err, hetero.ErrInvalid)
	futures, err = u.DevSubscribe(e.Context(), keys, from.lists, hetero.SubscribeOptions{})
	e.refused("subscribe to an illegal key", futures, err, hetero.ErrInvalid)
	u.gone(keys[:2])
	// And a key with every permitted kind of character.
	odd := []string{e.prefix + "-_!@#%^*()+=:;.azAZ09"}
	from = u.buffer(e.near(), shape{8, 9})
	given := u.publish(odd, from)
	u.receive(odd, u.buffer(e.far(), shape{8, 9}), from)
	e.awaitAll(odd, given, nil)
}

func checkPublishAgain(e *env) {
	publisher, other, subscriber := e.user(), e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	from, another := publisher.buffer(e.near(), shapes...), publisher.buffer(e.near(), shapes...)
	his, into := other.buffer(e.near(), shapes...), subscriber.buffer(e.far(), shapes...)
	first := publisher.publish(keys, from)
	second := publisher.publish(keys, from)
	wrong, err := publisher.DevPublish(e.Context(), keys, another.lists)
	if err == nil {
		e.Error("publishing keys again with other blobs: no error")
	}
	e.awaitAll(keys, wrong, failing(hetero.ErrInconsistent, keys...))
	wrong, err = other.DevPublish(e.Context(), keys, his.lists)
	if err == nil {
		e.Error("publishing another's keys: no error")
	}
	e.awaitAll(keys, wrong, failing(hetero.ErrExist, keys...))
	e.pending(first)
	e.pending(second)
	subscriber.receive(keys, into, from)
	e.awaitAll(keys, first, nil)
	e.awaitAll(keys, second, nil)
}

func checkSubscribeAgain(e *env) {
	publisher, subscriber := e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	from := publisher.buffer(e.near(), shapes...)
	into, another := subscriber.buffer(e.far(), shapes...), subscriber.buffer(e.far(), shapes...)
	first, second := subscriber.subscribe(keys, into), subscriber.subscribe(keys, into)
	wrong := subscriber.subscribe(keys, another)
	e.awaitAll(keys, wrong, failing(hetero.ErrInconsistent, keys...))
	given := publisher.publish(keys, from)
	e.awaitAll(keys, first, nil)
	e.awaitAll(keys, second, nil)
	e.awaitAll(keys, given, nil)
	into.takeAll(from)
}

func checkOtherShape(e *env) {
	publisher, subscriber := e.user(), e.user()
	keys := e.keys("k", 4)
	shapes := []shape{{10, 20, 30}, {40, 50}, {60}, {70, 80}}
	wrong := []shape{{10, 20}, {40, 50}, {61}, {80, 70}}
	from, into := publisher.buffer(e.near(), shapes...), subscriber.buffer(e.far(), wrong...)
	given := publisher.publish(keys, from)
	got := subscriber.subscribe(keys, into)
	e.awaitAll(keys, got, failing(hetero.ErrShape, keys[0], keys[2], keys[3]))
	e.awaitAll(keys[1:2], given[1:2], nil)
	for _, i := range []int{0, 2, 3} {
		e.bothShapes(got[i].Err(), shapes[i], wrong[i])
		e.pending(given[i : i+1])
	}
	into.take(1, from, 1, 0)
	into.check()
	// Publications that were not received still exist.
	left := []string{keys[0], keys[2], keys[3]}
	right := subscriber.buffer(e.far(), shapes[0], shapes[2], shapes[3])
	e.awaitAll(left, subscriber.subscribe(left, right), nil)
	for i, k := range []int{0, 2, 3} {
		right.take(i, from, k, 0)
		e.awaitAll(keys[k:k+1], given[k:k+1], nil)
	}
}

func checkNobodyPublishes(e *env) {
	u := e.user()
	keys := e.keys("k", 5)
	into := u.buffer(e.near(), same(5, shape{7})...)
	futures, err := u.DevSubscribe(e.Context(), keys, into.lists, hetero.SubscribeOptions{Timeout: time.Millisecond})
	e.ok(err)
	e.awaitAll(keys, futures, failing(hetero.ErrTimeout, keys...))
	// A cancellation also ends it.
	ctx, cancel := context.WithCancel(e.Context())
	futures, err = u.DevSubscribe(ctx, keys, into.lists, hetero.SubscribeOptions{Timeout: e.long()})
	e.ok(err)
	e.pending(futures)
	cancel()
	e.awaitAll(keys, futures, failing(hetero.ErrInterrupted, keys...))
}

func checkSubscribeMissingFirst(e *env) {
	publisher, subscriber := e.user(), e.user()
	keys, shapes := e.keys("k", 4), e.shapes(4, 3, 2000)
	from, into := publisher.buffer(e.near(), shapes...), subscriber.buffer(e.near(), shapes...)
	given := publisher.publish(keys[1:], from.part(1, 4))
	got := subscriber.subscribe(keys, into)
	e.awaitAll(keys[1:], got[1:], nil)
	e.awaitAll(keys[1:], given, nil)
	e.pending(got[:1])
	given = publisher.publish(keys[:1], from.part(0, 1))
	e.awaitAll(keys, got, nil)
	e.awaitAll(keys[:1], given, nil)
	into.takeAll(from)
}

func checkSameKeyAgain(e *env) {
	one, two, subscriber := e.user(), e.user(), e.user()
	keys, shapes := e.keys("k", 2), e.shapes(2, 3, 2000)
	into := subscriber.buffer(e.far(), shapes...)
	for _, u := range []*user{one, two, one} {
		from := u.buffer(e.near(), shapes...)
		futures := u.publish(keys, from)
		subscriber.receive(keys, into, from)
		e.awaitAll(keys, futures, nil)
		u.drop(keys)
	}
}

// checkTwoSubscribers lets two clients subscribe to one key: one of them gets it, and the
// other gets nothing.
func checkTwoSubscribers(e *env) {
	publisher, one, two := e.user(), e.user(), e.user()
	for round := range 10 {
		keys := e.keys("round-"+string(rune('a'+round)), 1)
		from := publisher.buffer(e.near(), shape{3000, 40})
		to := []*buffer{one.buffer(e.near(), shape{3000, 40}), two.buffer(e.far(), shape{3000, 40})}
		ctx, cancel := context.WithCancel(e.Context())
		var got []*hetero.Future
		for i, u := range []*user{one, two} {
			futures, err := u.DevSubscribe(ctx, keys, to[i].lists, hetero.SubscribeOptions{Timeout: e.long()})
			e.ok(err)
			got = append(got, futures...)
		}
		given := publisher.publish(keys, from)
		e.awaitAll(keys, given, nil)
		winner, loser := 0, 1
		select {
		case <-got[0].Done():
		case <-got[1].Done():
			winner, loser = 1, 0
		case <-time.After(e.patience):
			e.Fatal("the publisher knows of a receiver who does not")
		}
		e.awaitAll(keys, got[winner:winner+1], nil)
		to[winner].takeAll(from)
		e.pending(got[loser : loser+1])
		cancel()
		e.awaitAll(keys, got[loser:loser+1], failing(hetero.ErrInterrupted, keys...))
		to[loser].check()
	}
}

// checkManySubscribers lets three clients subscribe to the same keys concurrently: each key is
// delivered to one of them.
func checkManySubscribers(e *env) {
	publisher := e.user()
	keys, shapes := e.keys("k", 30), e.shapes(30, 3, 3000)
	from := publisher.buffer(e.near(), shapes...)
	given := publisher.publish(keys, from)
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	var into []*buffer
	var got [][]*hetero.Future
	for range 3 {
		u := e.user()
		b := u.buffer(e.far(), shapes...)
		futures, err := u.DevSubscribe(ctx, keys, b.lists, hetero.SubscribeOptions{Timeout: e.long()})
		e.ok(err)
		into, got = append(into, b), append(got, futures)
	}
	e.awaitAll(keys, given, nil)
	cancel()
	for i := range keys {
		winners := 0
		for k := range got {
			err := e.await(got[k][i])
			switch {
			case err == nil:
				winners++
				into[k].take(i, from, i, 0)
			case !isErr(err, hetero.ErrInterrupted):
				e.Fatalf("key %d of subscriber %d: %v", i, k, err)
			}
		}
		if winners != 1 {
			e.Fatalf("key %d was received %d times", i, winners)
		}
	}
}

func checkTwoNamespaces(e *env) {
	u, reader := e.user(), e.user()
	keys := e.keys("k", 1)
	set, published := u.buffer(e.near(), shape{100}), u.buffer(e.near(), shape{100})
	into := reader.buffer(e.far(), shape{100})
	u.set(keys, set)
	given := u.publish(keys, published)
	reader.get(keys, into, set)
	reader.receive(keys, into, published)
	e.awaitAll(keys, given, nil)
	reader.get(keys, into, set) // which the hand-over has not affected
	u.drop(keys)
	reader.gone(keys)
}

func checkFuture(e *env) {
	u := e.user()
	keys := e.keys("k", 1)
	from := u.buffer(e.near(), shape{100})
	given := u.publish(keys, from)
	ctx, cancel := context.WithTimeout(e.Context(), time.Millisecond)
	defer cancel()
	if err := given[0].Wait(ctx); !isErr(err, hetero.ErrTimeout) {
		e.Errorf("a future that is not ready: %v", err)
	}
	gone, stop := context.WithCancel(e.Context())
	stop()
	if err := given[0].Wait(gone); !isErr(err, hetero.ErrInterrupted) {
		e.Errorf("a wait that is cancelled: %v", err)
	}
	e.pending(given)
	u.receive(keys, u.buffer(e.near(), shape{100}), from)
	e.awaitAll(keys, given, nil)
	if err := given[0].Wait(gone); err != nil {
		e.Errorf("a future that is ready, asked in no time: %v", err)
	}
}
