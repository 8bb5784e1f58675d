package heterotest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// shape holds the sizes of the blobs of one key, in bytes.
type shape []int

// same returns the shapes of n keys of one shape.
func same(n int, s shape) []shape { return slices.Repeat([]shape{s}, n) }

// even returns the shape of n blobs of one size.
func even(n, size int) shape { return slices.Repeat(shape{size}, n) }

// shapes returns n random shapes, of up to blobs blobs of up to size bytes.
func (e *env) shapes(n, blobs, size int) []shape {
	out := make([]shape, n)
	for i := range out {
		out[i] = make(shape, 1+e.rand.IntN(blobs))
		for k := range out[i] {
			out[i][k] = 1 + e.rand.IntN(size)
		}
	}
	return out
}

// buffer is memory of a user whose complete content the case knows: the blobs of some keys, and
// the bytes before, between and after them.
type buffer struct {
	env *env
	mem Memory
	// lists holds the blobs, one list for each key.
	lists []hetero.DeviceBlobList
	// shadow has the bytes that the memory must hold.
	shadow []byte
	// loose reports that the content of the memory is unknown: its client was killed while it
	// received.
	loose bool
}

// maxGap bounds the bytes between two blobs.
const maxGap = 40

// buffer allocates memory for blobs on a device, and fills it.
func (u *user) buffer(device devices.Name, shapes ...shape) *buffer {
	u.env.Helper()
	e := u.env
	b := &buffer{env: e, lists: make([]hetero.DeviceBlobList, len(shapes))}
	at := 0
	for i, s := range shapes {
		b.lists[i] = hetero.DeviceBlobList{Device: device, Blobs: make([]hetero.Blob, len(s))}
		for _, k := range e.rand.Perm(len(s)) { // the order in memory is not that in the list
			at += 1 + e.rand.IntN(maxGap)
			b.lists[i].Blobs[k] = hetero.Blob{Off: devices.Offset(at), Size: devices.Size(s[k])}
			at += s[k]
		}
	}
	at += 1 + e.rand.IntN(maxGap)
	b.mem = u.peer.Memory(e.TB, device, devices.Size(at))
	for i := range b.lists {
		for k := range b.lists[i].Blobs {
			b.lists[i].Blobs[k].Memory = b.mem.ID()
		}
	}
	b.shadow = make([]byte, at)
	b.fill()
	e.buffers = append(e.buffers, b)
	return b
}

// fill gives the memory new random bytes, as its owner.
func (b *buffer) fill() {
	b.env.Helper()
	kit.FillAt(b.shadow, b.env.rand.Uint64(), 0)
	b.mem.Write(b.env.TB, 0, b.shadow)
}

// blob returns the expected bytes of the k-th blob of the i-th key.
func (b *buffer) blob(i, k int) []byte {
	at := b.lists[i].Blobs[k]
	return b.shadow[at.Off:][:at.Size]
}

// take records that the i-th key has received the bytes of the j-th key of another buffer, from
// an offset of each blob on.
func (b *buffer) take(i int, of *buffer, j, offset int) {
	for k := range b.lists[i].Blobs {
		copy(b.blob(i, k), of.blob(j, k)[offset:])
	}
}

// takeAll records that every key has received the bytes of the same key of another buffer, and
// checks the memory.
func (b *buffer) takeAll(of *buffer) {
	b.env.Helper()
	b.noteAll(of)
	b.check()
}

// check compares all of the memory with its expected content.
func (b *buffer) check() {
	b.env.Helper()
	got := make([]byte, len(b.shadow))
	b.mem.Read(b.env.TB, 0, got)
	if at := kit.FirstDiff(got, b.shadow); at >= 0 {
		b.env.Fatalf("byte %d of the memory is wrong: %s", at, b.place(at))
	}
}

// place describes the part of the memory at an offset.
func (b *buffer) place(at int) string {
	for i := range b.lists {
		for k, blob := range b.lists[i].Blobs {
			if at >= int(blob.Off) && at < int(blob.Off)+int(blob.Size) {
				return fmt.Sprintf("in blob %d of key %d, at %d of %d bytes", k, i, at-int(blob.Off), blob.Size)
			}
		}
	}
	return "between the blobs"
}

// has reports whether a key's blobs now hold the bytes of the j-th key of another buffer.
func (b *buffer) has(i int, of *buffer, j int) bool {
	for k, blob := range b.lists[i].Blobs {
		got := make([]byte, blob.Size)
		b.mem.Read(b.env.TB, blob.Off, got)
		if kit.FirstDiff(got, of.blob(j, k)) >= 0 {
			return false
		}
	}
	return true
}

// arrived waits until a key has received the bytes of the same key of another buffer, and
// records it.
func (b *buffer) arrived(i int, of *buffer) {
	b.env.Helper()
	kit.Eventually(b.env.TB, b.env.patience, func() bool { return b.has(i, of, i) })
	b.take(i, of, i, 0)
}

// part returns the buffer with some of its keys.
func (b *buffer) part(from, to int) *buffer {
	p := *b
	p.lists = b.lists[from:to]
	return &p
}

// verify checks all memory of the case: whatever was done, the owners' bytes must be unchanged.
func (e *env) verify() {
	e.Helper()
	for _, b := range e.buffers {
		if !b.loose {
			b.check()
		}
	}
}

// noteAll records that every key has received the bytes of the same key of another buffer,
// without a check.
func (b *buffer) noteAll(of *buffer) {
	for i := range b.lists {
		b.take(i, of, i, 0)
	}
}

// numbers formats a shape in the way that errors do.
func numbers(s shape) string {
	return strings.TrimSuffix(fmt.Sprintf("%d blobs %v", len(s), []int(s[:min(len(s), 8)])), "]")
}

// unknown records that the content of the i-th key's blobs is unknown: a transfer into them
// failed in the middle.
func (b *buffer) unknown(i int) {
	b.env.Helper()
	for k, blob := range b.lists[i].Blobs {
		b.mem.Read(b.env.TB, blob.Off, b.blob(i, k))
	}
}
