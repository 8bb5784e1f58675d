package heterotest

import (
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// room returns a bound for the host device's size. It skips the case if that is too large to be
// filled.
func (e *env) room() int {
	e.Helper()
	w, ok := e.world.(Limited)
	if !ok || w.HostRoom() == 0 {
		e.Skip("the host device of this world is too large to be filled")
	}
	return int(w.HostRoom())
}

// repeated returns a list that repeats one blob, with n bytes or more.
func repeated(l hetero.DeviceBlobList, n int) hetero.DeviceBlobList {
	l.Blobs = slices.Repeat(l.Blobs[:1], n/int(l.Blobs[0].Size)+1)
	return l
}

// checkNoRoom sets an object that is larger than the device, between two that are not: it alone
// fails, and no part of it becomes visible.
func checkNoRoom(e *env) {
	room := e.room()
	u := e.user()
	keys, shapes := e.keys("k", 3), same(3, shape{room / 16})
	from, into := u.buffer(e.near(), shapes...), u.buffer(e.far(), shapes...)
	lists := slices.Clone(from.lists)
	lists[1] = repeated(lists[1], room)
	r, err := u.MSetD2H(e.Context(), keys, lists, hetero.SetOptions{})
	e.outcome(keys, r, err, failing(hetero.ErrNoMemory, keys[1]))
	u.exist(keys[1:2], false)
	r, err = u.MGetH2D(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.outcome(keys, r, err, failing(hetero.ErrNotFound, keys[1]))
	into.take(0, from, 0, 0)
	into.take(2, from, 2, 0)
	into.check()
	// A failed replacement does not remove the existing object either.
	r, err = u.MSetD2H(e.Context(), keys[:1], []hetero.DeviceBlobList{lists[1]}, hetero.SetOptions{Existing: hetero.ExistingReplace})
	e.outcome(keys[:1], r, err, failing(hetero.ErrNoMemory, keys[0]))
	u.load(keys[:1], into.part(0, 1), from.part(0, 1))
	u.store(keys[1:2], from.part(1, 2), hetero.SetOptions{})
	u.load(keys, into, from)
	u.drop(keys)
}

// checkTooMuch sets more than fits. Nothing is evicted: existing objects stay, and the others
// fail, key by key.
func checkTooMuch(e *env) {
	room := e.room()
	u := e.user()
	keys := e.keys("k", 12)
	from, into := u.buffer(e.near(), shape{room / 8}), u.buffer(e.near(), shape{room / 8})
	for range 2 { // deleted objects free their space
		there := e.fill(u, keys, from.lists[0])
		for _, key := range there {
			into.fill()
			u.load([]string{key}, into, from)
		}
		u.drop(keys)
	}
}

// fill sets keys to one blob until no more fit, and returns the keys that were set.
func (e *env) fill(u *user, keys []string, l hetero.DeviceBlobList) (there []string) {
	e.Helper()
	r, err := u.MSetD2H(e.Context(), keys, slices.Repeat([]hetero.DeviceBlobList{l}, len(keys)), hetero.SetOptions{})
	fails := map[string]error{}
	for _, one := range r {
		if one.Err != nil {
			fails[one.Key] = hetero.ErrNoMemory
			continue
		}
		there = append(there, one.Key)
	}
	e.outcome(keys, r, err, fails)
	if len(there) == 0 || len(there) == len(keys) {
		e.Fatalf("%d of %d objects of %v fit", len(there), len(keys), l.Size())
	}
	info, err := u.GetMetaInfo(e.Context(), keys, false)
	e.ok(err)
	for i := range info {
		if fails[keys[i]] == nil && (info[i].Err != nil || info[i].Size != l.Size() || info[i].Device != devices.Name("host")) {
			e.Fatalf("key %q: %+v", keys[i], info[i])
		}
	}
	return there
}
