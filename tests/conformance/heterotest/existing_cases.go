package heterotest

import (
	"time"

	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// existingCases returns the cases of keys that exist already, and of keys that expire.
func existingCases() []testCase {
	return []testCase{
		{"C2 all exist", checkAllExist},
		{"C3 some exist", checkSomeExist},
		{"replace", checkReplace},
		{"replace what is bound", checkReplaceBound},
		{"fail on what exists", checkFailExisting},
		{"time to live", checkTTL},
	}
}

// skipped checks which keys of a set were left unchanged.
func (e *env) skipped(r hetero.Results, want func(i int) bool) {
	e.Helper()
	for i, one := range r {
		if one.Skipped != want(i) {
			e.Fatalf("key %d skipped: %v, want %v", i, one.Skipped, want(i))
		}
	}
}

func checkAllExist(e *env) {
	u := e.user()
	keys, shapes := e.keys("k", 500), same(500, shape{30, 4})
	first, second := u.buffer(e.near(), shapes[:450]...), u.buffer(e.near(), shapes...)
	into := u.buffer(e.far(), shapes...)
	u.store(keys[:450], first, hetero.SetOptions{})
	e.skipped(u.store(keys, second, hetero.SetOptions{}), func(i int) bool { return i < 450 })
	e.skipped(u.store(keys, second, hetero.SetOptions{Existing: hetero.ExistingSkip}), func(int) bool { return true })
	r, err := u.MGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.done(keys, r, err)
	into.part(0, 450).noteAll(first)
	into.part(450, 500).noteAll(second.part(450, 500))
}

func checkSomeExist(e *env) {
	u, other := e.user(), e.user()
	keys, shapes := e.keys("k", 30), e.shapes(30, 4, 600)
	first, second := other.buffer(e.far(), shapes...), u.buffer(e.near(), shapes...)
	into := u.buffer(e.near(), shapes...)
	for i := 0; i < len(keys); i += 3 {
		other.store(keys[i:i+1], first.part(i, i+1), hetero.SetOptions{})
	}
	e.skipped(u.store(keys, second, hetero.SetOptions{}), func(i int) bool { return i%3 == 0 })
	r, err := u.MGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.done(keys, r, err)
	for i := range keys {
		from := second
		if i%3 == 0 {
			from = first
		}
		into.take(i, from, i, 0)
	}
}

func checkReplace(e *env) {
	u, reader := e.user(), e.user()
	keys := e.keys("k", 3)
	first, second := u.buffer(e.near(), same(2, shape{300, 20})...), u.buffer(e.near(), same(3, shape{10, 5, 999})...)
	u.store(keys[:2], first, hetero.SetOptions{})
	r := u.store(keys, second, hetero.SetOptions{Existing: hetero.ExistingReplace})
	e.skipped(r, func(int) bool { return false })
	reader.load(keys, reader.buffer(e.far(), same(3, shape{10, 5, 999})...), second)
	info, err := reader.GetMetaInfo(e.Context(), keys, false)
	e.ok(err)
	for _, i := range info {
		if i.Size != 1014 || len(i.Blobs) != 3 {
			e.Errorf("a replaced object is told as %+v", i)
		}
	}
}

// checkReplaceBound replaces objects that refer to memory of a client: its bytes do not change.
func checkReplaceBound(e *env) {
	owner, u := e.user(), e.user()
	keys, shapes := e.keys("k", 2), e.shapes(2, 3, 700)
	from, second := owner.buffer(e.near(), shapes...), u.buffer(e.far(), shapes...)
	owner.set(keys, from)
	e.skipped(u.store(keys, second, hetero.SetOptions{}), func(int) bool { return true })
	u.store(keys, second, hetero.SetOptions{Existing: hetero.ExistingReplace})
	u.load(keys, u.buffer(e.near(), shapes...), second)
	from.check()
	r, err := owner.DevLocalDelete(e.Context(), keys) // which has no key any more
	e.done(keys, r, err)
	u.exist(keys, true)
}

func checkFailExisting(e *env) {
	u := e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 700)
	first, second := u.buffer(e.near(), shapes...), u.buffer(e.near(), shapes...)
	into := u.buffer(e.far(), shapes...)
	u.store(keys[1:2], first.part(1, 2), hetero.SetOptions{})
	fail := hetero.SetOptions{Existing: hetero.ExistingFail}
	r, err := u.MSetD2H(e.Context(), keys, second.lists, fail)
	e.outcome(keys, r, err, failing(hetero.ErrExist, keys[1]))
	r, err = u.MSetD2H(e.Context(), keys, second.lists, fail)
	e.outcome(keys, r, err, failing(hetero.ErrExist, keys...))
	r, err = u.MGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.done(keys, r, err)
	into.take(0, second, 0, 0)
	into.take(1, first, 1, 0)
	into.take(2, second, 2, 0)
}

func checkTTL(e *env) {
	u := e.user()
	keys, shapes := e.keys("k", 4), e.shapes(4, 2, 300)
	from := u.buffer(e.near(), shapes...)
	into := u.buffer(e.far(), shapes...)
	u.store(keys[:1], from.part(0, 1), hetero.SetOptions{TTL: time.Second})
	u.store(keys[1:3], from.part(1, 3), hetero.SetOptions{TTL: time.Hour})
	u.set(keys[3:], from.part(3, 4))
	for i, ttl := range []time.Duration{1: time.Second, 2: 0, 3: time.Second} {
		if i > 0 {
			r, err := u.Expire(e.Context(), keys[i:i+1], ttl)
			e.done(keys[i:i+1], r, err)
		}
	}
	mortal := []string{keys[0], keys[1], keys[3]}
	kit.Eventually(e.TB, e.patience, func() bool {
		there, err := u.Exist(e.Context(), mortal)
		return err == nil && !there[0] && !there[1] && !there[2]
	})
	r, err := u.MGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.outcome(keys, r, err, failing(hetero.ErrNotFound, mortal...))
	into.take(2, from, 2, 0)
	r, err = u.Expire(e.Context(), mortal, time.Hour)
	e.outcome(mortal, r, err, failing(hetero.ErrNotFound, mortal...))
	// An expired key is new again.
	r = u.store(keys, from, hetero.SetOptions{})
	e.skipped(r, func(i int) bool { return i == 2 })
	u.load(keys, into, from)
}
