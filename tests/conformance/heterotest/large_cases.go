package heterotest

import (
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// largeCases returns the cases with offsets that exceed 32 bits.
func largeCases() []testCase {
	return []testCase{
		{"A4 behind 4 GiB", checkHuge},
		{"a blob of more than 2 GiB", checkHugeBlob},
	}
}

// huge returns memory of a user beyond 4 GiB, of which only parts are written.
func (u *user) huge(n devices.Size) (Memory, devices.Name) {
	u.env.Helper()
	device := u.env.world.Huge()
	if device == "" {
		u.env.Skip("no device of this world gives more than 4 GiB without taking them")
	}
	return u.peer.Memory(u.env.TB, device, n), device
}

// checkHuge sets and publishes blobs beyond the first 4 GiB of their memory.
func checkHuge(e *env) {
	owner, reader := e.user(), e.user()
	mem, device := owner.huge(5 * devices.GiB)
	const at, n = 4<<30 + 4321, 10_000
	content := kit.Bytes(e.rand.Uint64(), 0, n)
	mem.Write(e.TB, at, content)
	keys := e.keys("k", 1)
	lists := []hetero.DeviceBlobList{{Device: device, Blobs: []hetero.Blob{{Memory: mem.ID(), Off: at, Size: n}}}}
	into := reader.buffer(e.far(), shape{n})
	r, err := owner.DevMSet(e.Context(), keys, lists)
	e.done(keys, r, err)
	r, err = reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.done(keys, r, err)
	copy(into.blob(0, 0), content)
	into.check()
	into.fill()
	given, err := owner.DevPublish(e.Context(), keys, lists)
	e.ok(err)
	e.awaitAll(keys, reader.subscribe(keys, into), nil)
	e.awaitAll(keys, given, nil)
	copy(into.blob(0, 0), content)
}

// checkHugeBlob reads a part beyond the first 4 GiB of one blob, and writes there.
func checkHugeBlob(e *env) {
	owner, reader := e.user(), e.user()
	const size, at, n = 5 << 30, 4<<30 + 77, 5000
	mem, device := owner.huge(size)
	content := kit.Bytes(e.rand.Uint64(), 0, n)
	mem.Write(e.TB, at, content)
	keys := e.keys("k", 1)
	whole := []hetero.DeviceBlobList{{Device: device, Blobs: []hetero.Blob{{Memory: mem.ID(), Size: size}}}}
	r, err := owner.DevMSet(e.Context(), keys, whole)
	e.done(keys, r, err)
	into := reader.buffer(e.far(), shape{n})
	into.lists[0].SourceOffset = at
	r, err = reader.DevMGet(e.Context(), keys, into.lists, hetero.GetOptions{})
	e.done(keys, r, err)
	copy(into.blob(0, 0), content)
	into.check()
	into.lists[0].SourceOffset = size - n + 1
	reader.cannotGet(keys, into, hetero.ErrShape)
	// The reverse: into memory beyond 4 GiB.
	from, back := reader.buffer(e.far(), shape{n}), make([]byte, n)
	key := e.keys("back", 1)
	reader.set(key, from)
	r, err = owner.DevMGet(e.Context(), key, []hetero.DeviceBlobList{
		{Device: device, Blobs: []hetero.Blob{{Memory: mem.ID(), Off: at + 9, Size: n}}},
	}, hetero.GetOptions{})
	e.done(key, r, err)
	mem.Read(e.TB, at+9, back)
	if d := kit.FirstDiff(back, from.blob(0, 0)); d >= 0 {
		e.Errorf("byte %d behind 4 GiB is wrong", d)
	}
}
