package heterotest

import (
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// hostCases returns the cases of MSetD2H and MGetH2D.
func hostCases() []testCase {
	return []testCase{
		{"C1 no key exists", checkNoExist},
		{"C4 lists that can't be", checkBadLists},
		{"C5 a device that is not there", checkBadDevice},
		{"C6 a source offset", checkBadOffset},
		{"C7 many blobs", checkManyBlobs},
		{"C10 one key is missing", checkOneMissing},
		{"C10 another shape", checkExactShape},
		{"C11 get before set", checkGetBeforeSet},
		{"C12 a key that is not there", checkHostNotThere},
		{"C13 sizes around a boundary", checkBoundary},
		{"C14 an object that finds no room", checkNoRoom},
		{"C15 more than there is room for", checkTooMuch},
		{"C17 set, get and delete by two clients", checkRoundsOfTwo},
		{"a host object is read in parts", checkHostParts},
	}
}

func checkNoExist(e *env) {
	u, reader := e.user(), e.user()
	keys, shapes := e.keys("k", 450), e.shapes(450, 2, 300)
	from, into := u.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	for _, one := range u.store(keys, from, hetero.SetOptions{}) {
		if one.Skipped {
			e.Fatalf("key %q was skipped, and is new", one.Key)
		}
	}
	reader.exist(keys, true)
	reader.load(keys, into, from)
	// It is a copy: later writes of the owner have no effect.
	old := *from
	old.shadow = slices.Clone(from.shadow)
	from.fill()
	reader.load(keys, into, &old)
}

// badLists returns lists for two keys that every call must refuse, by their fault.
func badLists(good *buffer, other devices.Name, huge devices.Size) map[string][]hetero.DeviceBlobList {
	first := good.lists[0]
	with := func(change func(l *hetero.DeviceBlobList)) []hetero.DeviceBlobList {
		l := first
		l.Blobs = slices.Clone(first.Blobs)
		change(&l)
		return []hetero.DeviceBlobList{first, l}
	}
	lists := map[string][]hetero.DeviceBlobList{
		"no lists":        nil,
		"too few lists":   good.lists[:1],
		"no blobs":        with(func(l *hetero.DeviceBlobList) { l.Blobs = nil }),
		"no memory":       with(func(l *hetero.DeviceBlobList) { l.Blobs[0].Memory = 0 }),
		"unknown memory":  with(func(l *hetero.DeviceBlobList) { l.Blobs[0].Memory += 1000 }),
		"no bytes":        with(func(l *hetero.DeviceBlobList) { l.Blobs[0].Size = 0 }),
		"behind the end":  with(func(l *hetero.DeviceBlobList) { l.Blobs[0].Size = huge }),
		"far behind":      with(func(l *hetero.DeviceBlobList) { l.Blobs[0].Off = 1 << 62 }),
		"overflow":        with(func(l *hetero.DeviceBlobList) { l.Blobs[0].Off = 1<<64 - 1 }),
		"no device":       with(func(l *hetero.DeviceBlobList) { l.Device = "" }),
		"no such device":  with(func(l *hetero.DeviceBlobList) { l.Device = "sim99" }),
		"negative offset": with(func(l *hetero.DeviceBlobList) { l.SourceOffset = -1 }),
	}
	lists["too many lists"] = append(slices.Clone(good.lists), first)
	if other != first.Device {
		lists["another device"] = with(func(l *hetero.DeviceBlobList) { l.Device = other })
	}
	return lists
}

// checkBadLists passes invalid lists to every call: each is refused as a whole, and nothing has
// moved.
func checkBadLists(e *env) {
	u := e.user()
	keys := e.keys("k", 2)
	good := u.buffer(e.near(), shape{10, 20}, shape{10, 20})
	stored := u.buffer(e.near(), shape{10, 20}, shape{10, 20})
	for what, lists := range badLists(good, e.far(), devices.Size(len(good.shadow))) {
		u.refusesAll(what, keys, lists)
	}
	u.exist(keys, false)
	u.gone(keys)
	// Nothing is read either, although it could be.
	u.store(keys, stored, hetero.SetOptions{})
	for what, lists := range badLists(good, e.far(), devices.Size(len(good.shadow))) {
		r, err := u.MGetH2D(e.Context(), keys, lists, hetero.GetOptions{})
		e.refused("MGetH2D with "+what, r, err, hetero.ErrInvalid)
	}
	good.check()
	u.drop(keys)
}

// refusesAll checks that every call with lists as arguments refuses them.
func (u *user) refusesAll(what string, keys []string, lists []hetero.DeviceBlobList) {
	e, ctx := u.env, u.env.Context()
	e.Helper()
	r, err := u.DevMSet(ctx, keys, lists)
	e.refused("DevMSet with "+what, r, err, hetero.ErrInvalid)
	r, err = u.DevMGet(ctx, keys, lists, hetero.GetOptions{})
	e.refused("DevMGet with "+what, r, err, hetero.ErrInvalid)
	r, err = u.MSetD2H(ctx, keys, lists, hetero.SetOptions{})
	e.refused("MSetD2H with "+what, r, err, hetero.ErrInvalid)
	r, err = u.MGetH2D(ctx, keys, lists, hetero.GetOptions{})
	e.refused("MGetH2D with "+what, r, err, hetero.ErrInvalid)
	f, err := u.DevPublish(ctx, keys, lists)
	e.refused("DevPublish with "+what, f, err, hetero.ErrInvalid)
	f, err = u.DevSubscribe(ctx, keys, lists, hetero.SubscribeOptions{})
	e.refused("DevSubscribe with "+what, f, err, hetero.ErrInvalid)
	b, err := u.AsyncMSetD2H(ctx, keys, lists, hetero.SetOptions{})
	e.refused("AsyncMSetD2H with "+what, b, err, hetero.ErrInvalid)
	b, err = u.AsyncMGetH2D(ctx, keys, lists, hetero.GetOptions{})
	e.refused("AsyncMGetH2D with "+what, b, err, hetero.ErrInvalid)
}

func checkBadDevice(e *env) {
	u := e.user()
	keys := e.keys("k", 2)
	for _, device := range []devices.Name{"", "-1", "99", "sim99", "nodes"} {
		good := u.buffer(e.near(), shape{10}, shape{20})
		for i := range good.lists {
			good.lists[i].Device = device
		}
		u.refusesAll(fmt.Sprintf("device %q", device), keys, good.lists)
	}
	u.exist(keys, false)
}

func checkBadOffset(e *env) {
	u := e.user()
	keys := e.keys("k", 1)
	from := u.buffer(e.near(), shape{200})
	u.store(keys, from, hetero.SetOptions{})
	for _, offset := range []int64{-1, -111, -1 << 63} {
		from.lists[0].SourceOffset = offset
		u.refusesAll(fmt.Sprintf("source offset %d", offset), keys, from.lists)
	}
	// Calls that have no source to offset, or read it as a whole.
	from.lists[0].SourceOffset = 7
	for what, call := range map[string]func() (hetero.Results, error){
		"DevMSet": func() (hetero.Results, error) { return u.DevMSet(e.Context(), keys, from.lists) },
		"MSetD2H": func() (hetero.Results, error) {
			return u.MSetD2H(e.Context(), keys, from.lists, hetero.SetOptions{})
		},
		"MGetH2D": func() (hetero.Results, error) {
			return u.MGetH2D(e.Context(), keys, from.lists, hetero.GetOptions{})
		},
	} {
		r, err := call()
		e.refused(what+" with a source offset", r, err, hetero.ErrInvalid)
	}
}

func checkManyBlobs(e *env) {
	u := e.user()
	keys, shapes := e.keys("k", 512), same(512, even(4, 256))
	from, into := u.buffer(e.near(), shapes...), u.buffer(e.far(), shapes...)
	u.store(keys, from, hetero.SetOptions{})
	u.load(keys, into, from)
	// And many blobs in one key.
	one := e.keys("one", 1)
	wide := e.shapes(1, 1, 1)[0]
	for range 511 {
		wide = append(wide, 1+e.rand.IntN(4096))
	}
	from, into = u.buffer(e.near(), wide), u.buffer(e.far(), wide)
	u.store(one, from, hetero.SetOptions{})
	u.load(one, into, from)
}

func checkOneMissing(e *env) {
	u, reader := e.user(), e.user()
	keys, shapes := e.keys("k", 16), e.shapes(16, 3, 2000)
	from, into := u.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	u.store(keys, from, hetero.SetOptions{})
	for _, gone := range []int{0, 15, 7} {
		r, err := reader.Delete(e.Context(), keys[gone:gone+1])
		e.done(keys[gone:gone+1], r, err)
		into.fill()
		r, err = reader.MGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{})
		e.outcome(keys, r, err, failing(hetero.ErrNotFound, keys[gone]))
		for i := range keys {
			if i != gone {
				into.take(i, from, i, 0)
			}
		}
		into.check()
		u.store(keys[gone:gone+1], from.part(gone, gone+1), hetero.SetOptions{})
	}
}

func checkExactShape(e *env) {
	u := e.user()
	keys := e.keys("k", 5)
	have := []shape{{10, 20}, {10, 20}, {10, 20}, {10, 20}, {10, 20}}
	want := []shape{{10}, {10, 20}, {20, 10}, {10, 19}, {30}}
	from, into := u.buffer(e.near(), have...), u.buffer(e.near(), want...)
	u.store(keys, from, hetero.SetOptions{})
	r, err := u.MGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.outcome(keys, r, err, failing(hetero.ErrShape, keys[0], keys[2], keys[3], keys[4]))
	for _, i := range []int{0, 2, 3, 4} {
		e.bothShapes(r[i].Err, have[i], want[i])
	}
	into.take(1, from, 1, 0)
	r, err = u.MGetH2D(e.Context(), keys[:1], into.lists[:1], hetero.GetOptions{})
	e.outcome(keys[:1], r, err, failing(hetero.ErrShape, keys[0]))
}

func checkGetBeforeSet(e *env) {
	u, reader := e.user(), e.user()
	keys, shapes := e.keys("k", 3), e.shapes(3, 3, 2000)
	from, into := u.buffer(e.near(), shapes...), reader.buffer(e.far(), shapes...)
	u.store(keys[1:2], from.part(1, 2), hetero.SetOptions{})
	get := e.start(func() (hetero.Results, error) {
		return reader.MGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{Timeout: e.long()})
	})
	into.arrived(1, from) // the first one is missing
	u.store(keys[:1], from.part(0, 1), hetero.SetOptions{})
	into.arrived(0, from)
	u.store(keys, from, hetero.SetOptions{})
	r, err := get.wait()
	e.done(keys, r, err)
	into.takeAll(from)
}

func checkHostNotThere(e *env) {
	u := e.user()
	keys := e.keys("k", 2)
	into := u.buffer(e.near(), same(2, shape{7})...)
	for _, o := range []hetero.GetOptions{{}, {Timeout: moment}} {
		r, err := u.MGetH2D(e.Context(), keys, into.lists, o)
		e.outcome(keys, r, err, failing(hetero.ErrNotFound, keys...))
	}
}

func checkBoundary(e *env) {
	u := e.user()
	const page, block = 4096, 500 << 10
	var shapes []shape
	for _, at := range []int{1, page, 2 * page, 64 << 10, block, 1 << 20} {
		for _, size := range []int{at - 1, at, at + 1} {
			if size > 0 {
				shapes = append(shapes, shape{size, 1, 3})
			}
		}
	}
	e.rand.Shuffle(len(shapes), func(i, k int) { shapes[i], shapes[k] = shapes[k], shapes[i] })
	keys := e.keys("k", len(shapes))
	from, into := u.buffer(e.near(), shapes...), u.buffer(e.far(), shapes...)
	u.store(keys, from, hetero.SetOptions{})
	u.load(keys, into, from)
}

func checkRoundsOfTwo(e *env) {
	one, two := e.user(), e.user()
	keys, shapes := e.keys("k", 8), e.shapes(8, 3, 5000)
	from, into := one.buffer(e.near(), shapes...), two.buffer(e.far(), shapes...)
	for range 3 {
		from.fill()
		one.store(keys, from, hetero.SetOptions{})
		two.load(keys, into, from)
		r, err := two.Delete(e.Context(), keys)
		e.done(keys, r, err)
		one.exist(keys, false)
	}
}

// checkHostParts reads a host object in the same way as device memory: there is only one kind of
// key.
func checkHostParts(e *env) {
	u := e.user()
	keys := e.keys("k", 2)
	from, into := u.buffer(e.near(), shape{1000, 500}, shape{70}), u.buffer(e.far(), shape{600, 100}, shape{30})
	u.store(keys[:1], from.part(0, 1), hetero.SetOptions{})
	u.set(keys[1:], from.part(1, 2))
	into.lists[0].SourceOffset, into.lists[1].SourceOffset = 400, 40
	r, err := u.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.done(keys, r, err)
	into.take(0, from, 0, 400)
	into.take(1, from, 1, 40)
	// MGetH2D reads a bound object as a whole, too.
	whole := u.buffer(e.near(), shape{70})
	u.load(keys[1:], whole, from.part(1, 2))
}
