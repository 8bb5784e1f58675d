package heterotest

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// directoryCases returns the cases of queries about keys.
func directoryCases() []testCase {
	return []testCase{
		{"E1 the sizes of what is set", checkInfoOfSet},
		{"E1 the sizes of what is published", checkInfoOfPublished},
		{"E2 no keys", checkNoKeys},
		{"E5 events", checkEvents},
		{"E7 ragged lists", checkRagged},
		{"E7 exist", checkExist},
		{"wait for keys", checkWait},
		{"wait for publications", checkWaitPublished},
		{"each key is told as it comes", checkEach},
		{"a key that nobody has drawn", checkGenerate},
	}
}

// sized makes lists from the result of GetMetaInfo, in a buffer of the reader.
func (e *env) sized(reader *user, keys []string, published bool) *buffer {
	e.Helper()
	info, err := reader.GetMetaInfo(e.Context(), keys, published)
	e.ok(err)
	if len(info) != len(keys) {
		e.Fatalf("told of %d keys, asked for %d", len(info), len(keys))
	}
	shapes := make([]shape, len(keys))
	for i, one := range info {
		if one.Key != keys[i] || one.Err != nil {
			e.Fatalf("key %q is told as %+v", keys[i], one)
		}
		sum := 0
		for _, size := range one.Blobs {
			shapes[i] = append(shapes[i], int(size))
			sum += int(size)
		}
		if sum != int(one.Size) {
			e.Fatalf("key %q: %d bytes in blobs of %v", keys[i], one.Size, one.Blobs)
		}
	}
	return reader.buffer(e.far(), shapes...)
}

func checkInfoOfSet(e *env) {
	u, reader := e.user(), e.user()
	keys := e.keys("k", 20)
	from := u.buffer(e.near(), e.shapes(20, 12, 600)...)
	u.set(keys[:10], from.part(0, 10))
	u.store(keys[10:], from.part(10, 20), hetero.SetOptions{})
	reader.get(keys, e.sized(reader, keys, false), from)
	// Two unknown keys.
	more := append(e.keys("unknown", 2), keys[:3]...)
	info, err := reader.GetMetaInfo(e.Context(), more, false)
	e.ok(err)
	for i, one := range info {
		if known := i >= 2; known != (one.Err == nil) || !known && !isErr(one.Err, hetero.ErrNotFound) || one.Key != more[i] {
			e.Errorf("key %d is told as %+v", i, one)
		}
	}
	if info[2].Device != e.near() {
		e.Errorf("memory of %s is told to be on %s", e.near(), info[2].Device)
	}
	info, err = reader.GetMetaInfo(e.Context(), more[:2], false)
	if !isErr(err, hetero.ErrNotFound) || len(info) != 2 {
		e.Errorf("keys that nobody knows: %v, %v", info, err)
	}
	_, err = reader.GetMetaInfo(e.Context(), keys, true)
	if !isErr(err, hetero.ErrNotFound) {
		e.Errorf("what is set is told as published: %v", err)
	}
}

func checkInfoOfPublished(e *env) {
	u, reader := e.user(), e.user()
	keys := e.keys("k", 10)
	from := u.buffer(e.near(), e.shapes(10, 12, 600)...)
	given := u.publish(keys, from)
	into := e.sized(reader, keys, true)
	e.pending(given) // a query does not receive
	reader.receive(keys, into, from)
	e.awaitAll(keys, given, nil)
	reader.gone(keys)
}

// checkNoKeys passes empty and invalid lists of keys to every call.
func checkNoKeys(e *env) {
	u := e.user()
	lists := u.buffer(e.near(), shape{7}).lists
	key := e.keys("k", 1)
	u.refusesAll("no keys and no lists", nil, nil)
	u.refusesAll("no keys", nil, lists)
	u.refusesAll("no lists", key, nil)
	u.refusesKeys("no keys", nil)
	for what, text := range map[string]string{
		"an empty key": "", "a dot": ".", "two dots": "..", "a slash": "a/b", "a blank": "a b",
		"a zero": "a\x00", "a letter of another alphabet": "ключ", "a long key": strings.Repeat("k", hetero.MaxKeyLen+1),
	} {
		u.refusesAll(what, []string{text}, lists)
		u.refusesKeys(what, []string{text})
	}
	twice := []string{key[0], key[0]}
	u.refusesAll("a key twice", twice, append(lists, lists[0]))
	u.refusesKeys("a key twice", twice)
	u.exist(key, false)
}

// refusesKeys checks that every call with keys as its only argument refuses them.
func (u *user) refusesKeys(what string, keys []string) {
	e, ctx := u.env, u.env.Context()
	e.Helper()
	r, err := u.DevDelete(ctx, keys)
	e.refused("DevDelete with "+what, r, err, hetero.ErrInvalid)
	r, err = u.DevLocalDelete(ctx, keys)
	e.refused("DevLocalDelete with "+what, r, err, hetero.ErrInvalid)
	r, err = u.Delete(ctx, keys)
	e.refused("Delete with "+what, r, err, hetero.ErrInvalid)
	b, err := u.AsyncDevDelete(ctx, keys)
	e.refused("AsyncDevDelete with "+what, b, err, hetero.ErrInvalid)
	there, err := u.Exist(ctx, keys)
	e.refused("Exist with "+what, there, err, hetero.ErrInvalid)
	info, err := u.GetMetaInfo(ctx, keys, false)
	e.refused("GetMetaInfo with "+what, info, err, hetero.ErrInvalid)
	info, err = u.GetMetaInfo(ctx, keys, true)
	e.refused("GetMetaInfo with "+what, info, err, hetero.ErrInvalid)
	r, err = u.Expire(ctx, keys, 0)
	e.refused("Expire with "+what, r, err, hetero.ErrInvalid)
	r, err = u.Wait(ctx, keys, false, moment)
	e.refused("Wait with "+what, r, err, hetero.ErrInvalid)
	var told []int
	err = u.Each(ctx, keys, false, moment, func(i int, _ error) { told = append(told, i) })
	e.refused("Each with "+what, told, err, hetero.ErrInvalid)
}

// checkEvents listens to the events in the life of a key and of a publication.
func checkEvents(e *env) {
	u := e.user()
	keys, shapes := e.keys("k", 2), same(2, shape{30, 12})
	from := u.buffer(e.near(), shapes...)
	l := e.world.Listen(e.TB)
	u.store(keys[:1], from.part(0, 1), hetero.SetOptions{})
	u.drop(keys[:1])
	u.set(keys[:1], from.part(0, 1))
	u.drop(keys[:1])
	u.store(keys[:1], from.part(0, 1), hetero.SetOptions{TTL: time.Second})
	e.heard(l, keys[0], "created", "removed", "created", "removed", "created", "expired")
	given := u.publish(keys[1:], from.part(1, 2))
	u.receive(keys[1:], u.buffer(e.near(), shape{30, 12}), from.part(1, 2))
	e.awaitAll(keys[1:], given, nil)
	u.publish(keys[1:], from.part(1, 2))
	e.ok(u.Close())
	e.heard(l, keys[1], "published", "consumed", "published", "withdrawn")
}

// heard checks the next events of a key.
func (e *env) heard(l Listener, key string, kinds ...string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.patience)
	defer cancel()
	for _, want := range kinds {
		for {
			ev, err := l.Next(ctx)
			if err != nil {
				e.Fatalf("no event %q of key %q: %v", want, key, err)
			}
			if ev.Key != key {
				continue
			}
			if ev.Kind != want || ev.Size != 42 {
				e.Fatalf("heard %+v, want %q of 42 bytes", ev, want)
			}
			break
		}
	}
}

// checkRagged passes lists whose numbers of blobs differ from those of the keys, along with valid
// ones: only the former fail.
func checkRagged(e *env) {
	u := e.user()
	keys := e.keys("k", 4)
	from, into := u.buffer(e.near(), same(4, shape{10, 10})...), u.buffer(e.near(), shape{10, 10}, shape{10}, shape{10, 10, 10}, shape{10, 10})
	u.store(keys, from, hetero.SetOptions{})
	r, err := u.MGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.outcome(keys, r, err, failing(hetero.ErrShape, keys[1:3]...))
	into.take(0, from, 0, 0)
	into.take(3, from, 3, 0)
	into.check()
	r, err = u.MGetH2D(e.Context(), keys, into.lists[:3], hetero.GetOptions{})
	e.refused("a list too few", r, err, hetero.ErrInvalid)
}

func checkExist(e *env) {
	u := e.user()
	keys := e.keys("k", 2)
	u.store(keys[:1], u.buffer(e.near(), shape{7}), hetero.SetOptions{})
	there, err := u.Exist(e.Context(), keys)
	e.ok(err)
	if len(there) != 2 || !there[0] || there[1] {
		e.Errorf("exist: %v, want [true false]", there)
	}
}

func checkWait(e *env) {
	u, other := e.user(), e.user()
	keys, shapes := e.keys("k", 3), same(3, shape{20})
	from := u.buffer(e.near(), shapes...)
	r, err := other.Wait(e.Context(), keys, false, moment)
	e.outcome(keys, r, err, failing(hetero.ErrTimeout, keys...))
	wait := e.start(func() (hetero.Results, error) { return other.Wait(e.Context(), keys, false, e.long()) })
	u.set(keys[1:2], from.part(1, 2))
	u.store(keys[2:], from.part(2, 3), hetero.SetOptions{})
	u.publish(keys[:1], from.part(0, 1)) // publications are a separate namespace
	r, err = other.Wait(e.Context(), keys, false, moment)
	e.outcome(keys, r, err, failing(hetero.ErrTimeout, keys[0]))
	u.set(keys[:1], from.part(0, 1))
	r, err = wait.wait()
	e.done(keys, r, err)
	r, err = other.Wait(e.Context(), keys, false, 0)
	e.done(keys, r, err)
}

func checkWaitPublished(e *env) {
	u, other := e.user(), e.user()
	keys, shapes := e.keys("k", 2), same(2, shape{20})
	from := u.buffer(e.near(), shapes...)
	u.set(keys, from)
	r, err := other.Wait(e.Context(), keys, true, moment)
	e.outcome(keys, r, err, failing(hetero.ErrTimeout, keys...))
	wait := e.start(func() (hetero.Results, error) { return other.Wait(e.Context(), keys, true, e.long()) })
	given := u.publish(keys, from)
	r, err = wait.wait()
	e.done(keys, r, err)
	e.pending(given) // waiting does not receive
}

func checkEach(e *env) {
	u, other := e.user(), e.user()
	keys := e.keys("k", 4)
	from := u.buffer(e.near(), same(4, shape{20})...)
	const unknown = -1
	come := func(i int) { u.set(keys[i:i+1], from.part(i, i+1)) }
	told, ended := make(chan int, 2*len(keys)), make(chan error, 1)
	come(1)
	go func() {
		ended <- other.Each(e.Context(), keys, false, e.long(), func(i int, err error) {
			if err != nil {
				i = unknown
			}
			told <- i
		})
	}()
	for n, i := range []int{1, 3, 2, 0} {
		if n > 0 {
			come(i)
		}
		select {
		case got := <-told:
			if got != i {
				e.Fatalf("told of key %d, want %d", got, i)
			}
		case <-time.After(e.long()):
			e.Fatalf("key %d is not told while others are missing", i)
		}
	}
	e.ok(<-ended)
	if len(told) > 0 {
		e.Errorf("told of key %d again", <-told)
	}
	missing := append(e.keys("unknown", 1), keys[0])
	var failed []int
	e.ok(other.Each(e.Context(), missing, false, moment, func(i int, err error) {
		if isErr(err, hetero.ErrTimeout) {
			failed = append(failed, i)
		} else if err != nil {
			e.Errorf("key %d is told as %v", i, err)
		}
	}))
	if len(failed) != 1 || failed[0] != 0 {
		e.Errorf("not there in time: %v, want [0]", failed)
	}
}

func checkGenerate(e *env) {
	u := e.user()
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 100 {
		key, err := u.GenerateKey("")
		e.ok(err)
		if seen[key] || !uuid.MatchString(key) {
			e.Fatalf("%q was drawn, again: %v", key, seen[key])
		}
		seen[key] = true
	}
	if key, err := u.GenerateKey("a-prefix"); key != "a-prefix" || err != nil {
		e.Errorf("a prefix becomes %q, %v", key, err)
	}
	if _, err := u.GenerateKey("a/b"); !isErr(err, hetero.ErrInvalid) {
		e.Errorf("a prefix that is no key: %v", err)
	}
}
