package heterotest

import (
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// deviceCases returns the cases of DevMSet, DevMGet and the removals.
func deviceCases() []testCase {
	return []testCase{
		{"A1 set and get on one device", checkOneDevice},
		{"A2 set and get across devices", checkTwoDevices},
		{"A3 get twice", checkGetTwice},
		{"A4 part of the data", checkHalf},
		{"A4 any part of the data", checkParts},
		{"A4 more than there is", checkBeyond},
		{"A5 blobs of two sizes", checkTwoSizes},
		{"A6 two owners in one call", checkTwoOwners},
		{"A7 another number of blobs", checkCount},
		{"A8 a key that nobody sets", checkNobody},
		{"A9 some keys never come", checkSomeNever},
		{"A9 the missing key comes first", checkMissingFirst},
		{"A10 keys come step by step", checkSteps},
		{"A11 no time to wait", checkNoWait},
		{"A13 get after delete", checkAfterDelete},
		{"A15 set again after delete", checkSetAgain},
		{"setting a key twice", checkSetTwice},
		{"memory that goes under its keys", checkUnregister},
	}
}

func checkOneDevice(e *env) {
	u := e.user()
	keys, shapes := e.keys("k", 10), same(10, even(5, 100))
	from, into := u.buffer(e.near(), shapes...), u.buffer(e.near(), shapes...)
	u.set(keys, from)
	u.exist(keys, true)
	u.get(keys, into, from)
}

func checkTwoDevices(e *env) {
	owner, reader := e.user(), e.user()
	keys, shapes := e.keys("k", 10), e.shapes(10, 5, 100_000)
	from, into := owner.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	owner.set(keys, from)
	reader.get(keys, into, from)
	// Setting copies no bytes: reads return what the owner writes now.
	from.fill()
	reader.get(keys, into, from)
}

func checkGetTwice(e *env) {
	owner, reader := e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 4, 5000)
	from := owner.buffer(e.near(), shapes...)
	one, two := reader.buffer(e.far(), shapes...), reader.buffer(e.near(), shapes...)
	owner.set(keys, from)
	reader.get(keys, one, from)
	reader.get(keys, two, from)
	// A read leaves no trace: the key ends with its owner's copy.
	r, err := owner.DevLocalDelete(e.Context(), keys)
	e.done(keys, r, err)
	reader.cannotGet(keys, one, hetero.ErrNotFound)
}

func checkHalf(e *env) {
	owner := e.user()
	keys := e.keys("k", 4)
	from := owner.buffer(e.near(), same(4, even(3, 20_002))...)
	owner.set(keys, from)
	for _, reader := range []*user{owner, e.user()} {
		into := reader.buffer(e.far(), same(4, even(3, 10_001))...)
		for i := range into.lists {
			into.lists[i].SourceOffset = 10_001
		}
		r, err := reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{})
		e.done(keys, r, err)
		for i := range keys {
			into.take(i, from, i, 10_001)
		}
		into.check()
	}
}

func checkParts(e *env) {
	owner, reader := e.user(), e.user()
	keys, whole := e.keys("k", 40), e.shapes(40, 4, 3000)
	offsets, parts := make([]int, len(whole)), make([]shape, len(whole))
	for i, s := range whole {
		least := s[0]
		for _, size := range s {
			least = min(least, size)
		}
		offsets[i] = e.rand.IntN(least)
		for _, size := range s {
			parts[i] = append(parts[i], 1+e.rand.IntN(size-offsets[i]))
		}
	}
	from, into := owner.buffer(e.near(), whole...), reader.buffer(e.far(), parts...)
	owner.set(keys, from)
	for i := range into.lists {
		into.lists[i].SourceOffset = int64(offsets[i])
	}
	r, err := reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.done(keys, r, err)
	for i := range keys {
		into.take(i, from, i, offsets[i])
	}
}

func checkBeyond(e *env) {
	owner, reader := e.user(), e.user()
	keys := e.keys("k", 3)
	from, into := owner.buffer(e.near(), same(3, shape{100, 200})...), reader.buffer(e.near(), shape{50, 101}, shape{50, 60}, shape{1, 1})
	owner.set(keys, from)
	into.lists[0].SourceOffset = 50 // the first blob has 50 bytes from there on
	into.lists[1].SourceOffset = 51
	into.lists[2].SourceOffset = 1<<63 - 1
	r, err := reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.outcome(keys, r, err, failing(hetero.ErrShape, keys[1:]...))
	into.take(0, from, 0, 50)
}

func checkTwoSizes(e *env) {
	u := e.user()
	keys := e.keys("k", 1)
	from, into := u.buffer(e.near(), shape{5, 10}), u.buffer(e.far(), shape{5, 10})
	u.set(keys, from)
	u.get(keys, into, from)
}

func checkTwoOwners(e *env) {
	reader, other := e.user(), e.user()
	keys, shapes := e.keys("k", 6), e.shapes(6, 3, 900)
	mine, his := reader.buffer(e.near(), shapes[:3]...), other.buffer(e.far(), shapes[3:]...)
	reader.set(keys[:3], mine)
	other.set(keys[3:], his)
	into := reader.buffer(e.near(), shapes...)
	r, err := reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.done(keys, r, err)
	into.part(0, 3).noteAll(mine)
	into.part(3, 6).noteAll(his)
}

func checkCount(e *env) {
	owner, reader := e.user(), e.user()
	keys := e.keys("k", 3)
	from := owner.buffer(e.near(), even(5, 11), even(5, 12), even(5, 13))
	into := reader.buffer(e.near(), even(5, 11), even(10, 12), even(4, 13))
	owner.set(keys, from)
	r, err := reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.outcome(keys, r, err, failing(hetero.ErrShape, keys[1:]...))
	into.take(0, from, 0, 0)
	e.bothShapes(r[1].Err, even(5, 12), even(10, 12))
	e.bothShapes(r[2].Err, even(5, 13), even(4, 13))
}

// bothShapes checks that an error contains the blobs of the source and the requested ones.
func (e *env) bothShapes(err error, have, want shape) {
	e.Helper()
	for _, s := range []shape{have, want} {
		if told := numbers(s); !strings.Contains(err.Error(), told) {
			e.Errorf("the error does not tell the blobs %s: %v", told, err)
		}
	}
}

func checkNobody(e *env) {
	u := e.user()
	keys := e.keys("k", 2)
	into := u.buffer(e.near(), same(2, shape{7})...)
	start := time.Now()
	r, err := u.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{Timeout: moment})
	e.outcome(keys, r, err, failing(hetero.ErrNotFound, keys...))
	if took := time.Since(start); took < moment {
		e.Errorf("given up after %v of %v", took, moment)
	}
}

// checkSomeNever requests 15 keys of which 9 exist, one appears late, and 5 never do. If the
// machine is so slow that the late one appears too late, it tries again with more time.
func checkSomeNever(e *env) {
	owner, reader := e.user(), e.user()
	shapes := e.shapes(15, 3, 2000)
	for timeout := time.Second; ; timeout *= 4 {
		keys := e.keys("k"+timeout.String(), 15)
		from, into := owner.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
		owner.set(keys[:9], from.part(0, 9))
		start := time.Now()
		get := e.start(func() (hetero.Results, error) {
			return reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{Timeout: timeout})
		})
		into.arrived(0, from)
		owner.set(keys[9:10], from.part(9, 10))
		r, err := get.wait()
		if took := time.Since(start); took < timeout {
			e.Fatalf("given up after %v of %v: %v", took, timeout, err)
		}
		into.part(0, 9).noteAll(from)
		if err == nil && r[9].Err != nil && timeout < e.patience {
			continue
		}
		e.outcome(keys, r, err, failing(hetero.ErrNotFound, keys[10:]...))
		into.take(9, from, 9, 0)
		return
	}
}

func checkMissingFirst(e *env) {
	owner, reader := e.user(), e.user()
	keys, shapes := e.keys("k", 4), e.shapes(4, 3, 2000)
	from, into := owner.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	owner.set(keys[1:], from.part(1, 4))
	get := e.start(func() (hetero.Results, error) {
		return reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{Timeout: e.long()})
	})
	for i := 1; i < len(keys); i++ {
		into.arrived(i, from) // while the call waits for the first one
	}
	owner.set(keys[:1], from.part(0, 1))
	r, err := get.wait()
	e.done(keys, r, err)
	into.takeAll(from)

	never := append([]string{e.key("never")}, keys...)
	again := reader.buffer(e.near(), append([]shape{{9}}, shapes...)...)
	r, err = reader.DevMGet(e.Context(), never, again.lists, hetero.GetOptions{Timeout: moment})
	e.outcome(never, r, err, failing(hetero.ErrNotFound, never[0]))
	again.part(1, 5).takeAll(from)
}

func checkSteps(e *env) {
	owner, reader := e.user(), e.user()
	keys, shapes := e.keys("k", 9), e.shapes(9, 3, 2000)
	from, into := owner.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	get := e.start(func() (hetero.Results, error) {
		return reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{Timeout: e.long()})
	})
	for _, step := range []int{6, 0, 3} {
		owner.set(keys[step:step+3], from.part(step, step+3))
		for i := step; i < step+3; i++ {
			into.arrived(i, from)
		}
	}
	r, err := get.wait()
	e.done(keys, r, err)
	into.takeAll(from)
}

func checkNoWait(e *env) {
	owner, reader := e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	from, into := owner.buffer(e.near(), shapes...), reader.buffer(e.near(), shapes...)
	owner.set(keys[:2], from.part(0, 2))
	r, err := reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.outcome(keys, r, err, failing(hetero.ErrNotFound, keys[2]))
	into.part(0, 2).takeAll(from)
}

func checkAfterDelete(e *env) {
	owner, other := e.user(), e.user()
	keys, shapes := e.keys("k", 4), e.shapes(4, 3, 2000)
	from, into := owner.buffer(e.near(), shapes...), other.buffer(e.far(), shapes...)
	owner.set(keys, from)
	other.drop(keys[:2]) // any client of the same user may
	b, err := owner.AsyncDevDelete(e.Context(), keys[2:])
	e.ok(err)
	r, err := e.awaitBatch(b)
	e.done(keys[2:], r, err)
	owner.exist(keys, false)
	other.cannotGet(keys, into, hetero.ErrNotFound)
	owner.drop(keys) // keys that do not exist count as removed
}

func checkSetAgain(e *env) {
	one, two := e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	first, second := one.buffer(e.near(), shapes...), two.buffer(e.far(), shapes...)
	into := one.buffer(e.near(), shapes...)
	one.set(keys, first)
	r, err := two.DevMSet(e.Context(), keys, second.lists)
	e.outcome(keys, r, err, failing(hetero.ErrExist, keys...))
	one.drop(keys)
	two.set(keys, second)
	one.get(keys, into, second)
}

func checkSetTwice(e *env) {
	u, reader := e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	first, second := u.buffer(e.near(), shapes...), u.buffer(e.near(), shapes...)
	into := reader.buffer(e.near(), shapes...)
	u.set(keys, first)
	u.set(keys, first)
	r, err := u.DevMSet(e.Context(), keys, second.lists)
	e.outcome(keys, r, err, failing(hetero.ErrInconsistent, keys...))
	reader.get(keys, into, first)
	// Only the keys that are already set fail.
	more := append(e.keys("more", 1), keys[1:]...)
	r, err = u.DevMSet(e.Context(), more, second.lists)
	e.outcome(more, r, err, failing(hetero.ErrInconsistent, more[1:]...))
	one := reader.buffer(e.near(), shapes[0])
	reader.get(more[:1], one, second.part(0, 1))
}

func checkUnregister(e *env) {
	u, reader := e.user(), e.user()
	keys, shapes := e.keys("k", 2), e.shapes(2, 3, 2000)
	from, into := u.buffer(e.near(), shapes...), reader.buffer(e.near(), shapes...)
	u.set(keys[:1], from.part(0, 1))
	futures := u.publish(keys[1:], from.part(1, 2))
	e.ok(u.Unregister(e.Context(), from.mem.ID()))
	e.awaitAll(keys[1:], futures, failing(hetero.ErrWithdrawn, keys[1]))
	reader.exist(keys[:1], false)
	reader.cannotGet(keys[:1], into.part(0, 1), hetero.ErrLost)
	r, err := u.DevMSet(e.Context(), keys, from.lists)
	e.refused("set memory that was let go", r, err, hetero.ErrInvalid)
	if err = u.Unregister(e.Context(), from.mem.ID()); !isErr(err, hetero.ErrNotFound) {
		e.Errorf("memory let go twice: %v", err)
	}
	// A lost object can be replaced.
	again := u.buffer(e.far(), shapes...)
	u.set(keys[:1], again.part(0, 1))
	reader.get(keys[:1], into.part(0, 1), again.part(0, 1))
}
