package heterotest

import (
	"context"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// publisherCases returns the cases of hand-overs one side of which ends.
func publisherCases() []testCase {
	return []testCase{
		{"B9 close while waiting", checkCloseWaiting},
		{"the publisher closes", checkPublisherCloses},
		{"the publisher is killed", checkPublisherKilled},
		{"the publisher is killed while it is read", checkPublisherKilledInTheMiddle},
		{"the subscriber is killed", checkSubscriberKilled},
	}
}

func checkCloseWaiting(e *env) {
	u := e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	got := u.subscribe(keys, u.buffer(e.near(), shapes...))
	into := u.buffer(e.near(), shapes...)
	get := e.start(func() (hetero.Results, error) {
		return u.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{Timeout: e.long()})
	})
	given := u.publish(e.keys("mine", 3), into)
	closed := e.start(func() (hetero.Results, error) { return nil, u.Close() })
	if _, err := closed.wait(); err != nil {
		e.Errorf("close: %v", err)
	}
	e.awaitAll(keys, got, failing(hetero.ErrClosed, keys...))
	for _, f := range given {
		if err := e.await(f); !isErr(err, hetero.ErrWithdrawn, hetero.ErrClosed) {
			e.Errorf("what was published ended with %v", err)
		}
	}
	// The call may have started only after the end.
	if r, err := get.wait(); r == nil && !isErr(err, hetero.ErrClosed) || r != nil {
		if r == nil {
			e.Fatalf("a call behind the end: %v", err)
		}
		e.outcome(keys, r, err, failing(hetero.ErrClosed, keys...))
	}
	if err := u.Close(); err != nil {
		e.Errorf("close again: %v", err)
	}
}

func checkPublisherCloses(e *env) {
	publisher, subscriber := e.user(), e.user()
	keys, shapes := e.keys("k", 4), e.shapes(4, 3, 2000)
	from, into := publisher.buffer(e.near(), shapes...), subscriber.buffer(e.far(), shapes...)
	given := publisher.publish(keys, from)
	subscriber.receive(keys[:2], into.part(0, 2), from.part(0, 2))
	e.ok(publisher.Close())
	e.awaitAll(keys[:2], given[:2], nil)
	for _, f := range given[2:] {
		if err := e.await(f); !isErr(err, hetero.ErrWithdrawn, hetero.ErrClosed) {
			e.Errorf("what nobody has received ended with %v", err)
		}
	}
	subscriber.gone(keys)
	futures, err := subscriber.DevSubscribe(e.Context(), keys[2:], into.part(2, 4).lists, hetero.SubscribeOptions{Timeout: moment})
	e.ok(err)
	e.awaitAll(keys[2:], futures, failing(hetero.ErrTimeout, keys...))
	// The key is free for another.
	again := subscriber.buffer(e.near(), shapes[2:]...)
	given = subscriber.publish(keys[2:], again)
	subscriber.receive(keys[2:], into.part(2, 4), again)
	e.awaitAll(keys[2:], given, nil)
}

func checkPublisherKilled(e *env) {
	publisher, subscriber := e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	from, into := publisher.buffer(e.near(), shapes...), subscriber.buffer(e.far(), shapes...)
	publisher.publish(keys, from)
	publisher.peer.Kill(e.TB)
	subscriber.removed(keys)
	got := subscriber.subscribe(keys, into)
	e.pending(got)
	again := subscriber.buffer(e.near(), shapes...)
	given := subscriber.publish(keys, again)
	e.awaitAll(keys, got, nil)
	e.awaitAll(keys, given, nil)
	into.takeAll(again)
}

// checkPublisherKilledInTheMiddle kills a publisher while its keys are received: each key
// arrives whole, or its future reports that it was not delivered.
func checkPublisherKilledInTheMiddle(e *env) {
	publisher, subscriber := e.user(), e.user()
	keys, shapes := e.keys("k", 12), same(12, shape{200_000, 1})
	from, into := publisher.buffer(e.near(), shapes...), subscriber.buffer(e.far(), shapes...)
	publisher.publish(keys, from)
	futures, err := subscriber.DevSubscribe(e.Context(), keys, into.lists, hetero.SubscribeOptions{Timeout: 10 * moment})
	e.ok(err)
	publisher.peer.Kill(e.TB)
	for i, f := range futures {
		switch err := e.await(f); {
		case err == nil:
			into.take(i, from, i, 0)
		case isErr(err, hetero.ErrOwnerGone, hetero.ErrTimeout, hetero.ErrWithdrawn):
			into.unknown(i)
		default:
			e.Errorf("key %d: %v", i, err)
		}
	}
}

// checkSubscriberKilled kills a client that waits for keys which others then get. Before it ends
// it may receive one, but none is lost with it.
func checkSubscriberKilled(e *env) {
	publisher, killed, subscriber := e.user(), e.user(), e.user()
	keys, shapes := e.keys("k", 6), e.shapes(6, 3, 2000)
	from, into := publisher.buffer(e.near(), shapes...), subscriber.buffer(e.far(), shapes...)
	his := killed.buffer(e.far(), shapes[:3]...)
	his.loose = true
	killed.subscribe(keys[:3], his)
	killed.peer.Kill(e.TB)
	given := publisher.publish(keys, from)
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	got, err := subscriber.DevSubscribe(ctx, keys, into.lists, hetero.SubscribeOptions{Timeout: e.long()})
	e.ok(err)
	e.awaitAll(keys, given, nil)
	e.awaitAll(keys[3:], got[3:], nil)
	publisher.removed(keys)
	cancel()
	for i, f := range got {
		switch err = e.await(f); {
		case err == nil:
			into.take(i, from, i, 0)
		case i >= 3 || !isErr(err, hetero.ErrInterrupted):
			e.Errorf("key %d: %v", i, err)
		}
	}
}
