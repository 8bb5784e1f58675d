package heterotest

import (
	"context"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// asyncCases returns the cases of calls that continue in the background.
func asyncCases() []testCase {
	return []testCase{
		{"C8 the descriptors are the caller's", checkDescriptors},
		{"C9 many at once", checkManyAsync},
		{"C9 a call that waits returns", checkAsyncReturns},
		{"C18 one of many is missing", checkAsyncMissing},
		{"C18 all are missing", checkAsyncAllMissing},
	}
}

// scratch passes copies of keys and lists to a call, and overwrites them as soon as it has
// returned.
func scratch[T any](keys []string, lists []hetero.DeviceBlobList, call func([]string, []hetero.DeviceBlobList) (T, error)) (T, error) {
	keys, lists = slices.Clone(keys), slices.Clone(lists)
	for i := range lists {
		lists[i].Blobs = slices.Clone(lists[i].Blobs)
	}
	out, err := call(keys, lists)
	for i := range lists {
		for k := range lists[i].Blobs {
			lists[i].Blobs[k] = hetero.Blob{Memory: 1 << 40, Size: 1}
		}
		lists[i] = hetero.DeviceBlobList{}
	}
	for i := range keys {
		keys[i] = "destroyed"
	}
	return out, err
}

func checkDescriptors(e *env) {
	u, ctx := e.user(), e.Context()
	keys, shapes := e.keys("k", 20), e.shapes(20, 3, 5000)
	from := u.buffer(e.near(), shapes...)
	b, err := scratch(keys, from.lists, func(keys []string, lists []hetero.DeviceBlobList) (*hetero.Batch, error) {
		return u.AsyncMSetD2H(ctx, keys, lists, hetero.SetOptions{})
	})
	e.ok(err)
	r, err := e.awaitBatch(b)
	e.done(keys, r, err)

	into := u.buffer(e.far(), shapes...)
	b, err = scratch(keys, into.lists, func(keys []string, lists []hetero.DeviceBlobList) (*hetero.Batch, error) {
		return u.AsyncMGetH2D(ctx, keys, lists, hetero.GetOptions{})
	})
	e.ok(err)
	r, err = e.awaitBatch(b)
	e.done(keys, r, err)
	into.takeAll(from)

	received := u.buffer(e.near(), shapes...)
	got, err := scratch(keys, received.lists, func(keys []string, lists []hetero.DeviceBlobList) ([]*hetero.Future, error) {
		return u.DevSubscribe(ctx, keys, lists, hetero.SubscribeOptions{Timeout: e.long()})
	})
	e.ok(err)
	given, err := scratch(keys, from.lists, func(keys []string, lists []hetero.DeviceBlobList) ([]*hetero.Future, error) {
		return u.DevPublish(ctx, keys, lists)
	})
	e.ok(err)
	e.awaitAll(keys, given, nil)
	e.awaitAll(keys, got, nil)
	received.takeAll(from)

	b, err = scratch(keys, nil, func(keys []string, _ []hetero.DeviceBlobList) (*hetero.Batch, error) {
		return u.AsyncDevDelete(ctx, keys)
	})
	e.ok(err)
	r, err = e.awaitBatch(b)
	e.done(keys, r, err)
	u.exist(keys, false)
}

// checkManyAsync runs 16 calls concurrently.
func checkManyAsync(e *env) {
	u := e.user()
	const calls = 16
	batches, keys, from := make([]*hetero.Batch, calls), make([][]string, calls), make([]*buffer, calls)
	for i := range calls {
		keys[i] = e.keys(fmt.Sprint(i), 4)
		from[i] = u.buffer(e.near(), e.shapes(4, 3, 3000)...)
	}
	e.together(calls/2, func(i int) {
		for k := i; k < calls; k += calls / 2 {
			b, err := u.AsyncMSetD2H(e.Context(), keys[k], from[k].lists, hetero.SetOptions{})
			if err != nil {
				e.Errorf("call %d: %v", k, err)
			}
			batches[k] = b
		}
	})
	for i, b := range batches {
		r, err := e.awaitBatch(b)
		e.done(keys[i], r, err)
		into := e.sameShape(u, from[i])
		u.load(keys[i], into, from[i])
	}
}

// sameShape returns a buffer with the same shapes as another one.
func (e *env) sameShape(u *user, of *buffer) *buffer {
	e.Helper()
	shapes := make([]shape, len(of.lists))
	for i, l := range of.lists {
		for _, b := range l.Blobs {
			shapes[i] = append(shapes[i], int(b.Size))
		}
	}
	return u.buffer(e.far(), shapes...)
}

// checkAsyncReturns starts calls that cannot complete on their own: they return nevertheless.
func checkAsyncReturns(e *env) {
	u := e.user()
	keys := e.keys("k", 2)
	from, into := u.buffer(e.near(), same(2, shape{70, 9})...), u.buffer(e.far(), same(2, shape{70, 9})...)
	b, err := u.AsyncMGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{Timeout: e.long()})
	e.ok(err)
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	r, err := b.Wait(ctx)
	if r != nil || !isErr(err, hetero.ErrInterrupted) {
		e.Fatalf("a call that waits for keys has ended: %v, %v", r, err)
	}
	u.store(keys, from, hetero.SetOptions{})
	r, err = e.awaitBatch(b)
	e.done(keys, r, err)
	into.takeAll(from)
	// A cancellation ends the calls in progress.
	ctx, cancel = context.WithCancel(e.Context())
	never := e.keys("never", 2)
	b, err = u.AsyncMGetH2D(ctx, never, into.lists, hetero.GetOptions{Timeout: e.long()})
	e.ok(err)
	cancel()
	r, err = e.awaitBatch(b)
	e.outcome(never, r, err, failing(hetero.ErrInterrupted, never...))
}

func checkAsyncMissing(e *env) {
	u := e.user()
	keys, shapes := e.keys("k", 128), e.shapes(128, 2, 500)
	from, into := u.buffer(e.near(), shapes...), u.buffer(e.far(), shapes...)
	missing := e.rand.IntN(len(keys))
	there, lists := slices.Delete(slices.Clone(keys), missing, missing+1), slices.Delete(slices.Clone(from.lists), missing, missing+1)
	r, err := u.MSetD2H(e.Context(), there, lists, hetero.SetOptions{})
	e.done(there, r, err)
	b, err := u.AsyncMGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.ok(err)
	r, err = e.awaitBatch(b)
	e.outcome(keys, r, err, failing(hetero.ErrNotFound, keys[missing]))
	for i := range keys {
		if i != missing {
			into.take(i, from, i, 0)
		}
	}
}

func checkAsyncAllMissing(e *env) {
	u := e.user()
	keys := e.keys("k", 3)
	into := u.buffer(e.near(), same(3, shape{7})...)
	b, err := u.AsyncMGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.ok(err)
	r, err := e.awaitBatch(b)
	e.outcome(keys, r, err, failing(hetero.ErrNotFound, keys...))
	u.store(keys, into, hetero.SetOptions{})
	b, err = u.AsyncMSetD2H(e.Context(), keys, into.lists, hetero.SetOptions{Existing: hetero.ExistingFail})
	e.ok(err)
	r, err = e.awaitBatch(b)
	e.outcome(keys, r, err, failing(hetero.ErrExist, keys...))
}
