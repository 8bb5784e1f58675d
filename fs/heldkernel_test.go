package fs

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/hmcfs/hmcfs/tests/keep"
)

// writes is a keeper that records what it is to write.
type writes struct {
	keep.Store
	got [][]byte
}

func (w *writes) Write(name string, p []byte) error {
	w.got = append(w.got, append([]byte(name+" "), p...))
	return nil
}

// TestHeldKernel compares notifications with the kernel's structures: fuse_out_header, and
// fuse_notify_inval_entry_out or fuse_notify_inval_inode_out.
func TestHeldKernel(t *testing.T) {
	w := &writes{}
	k := heldKernel{keeper: w}
	k.InvalidateEntry(0x1122334455667788, "a name")
	k.InvalidatePages(7)
	k.InvalidateRange(8, 4096, 100)
	k.InvalidateRange(9, 4096, math.MaxUint64)
	message := func(code uint32, words ...any) []byte {
		var body bytes.Buffer
		for _, v := range words {
			must(t, binary.Write(&body, binary.NativeEndian, v))
		}
		var m bytes.Buffer
		m.WriteString(heldDevice + " ")
		for _, v := range []any{uint32(16 + body.Len()), code, uint64(0), body.Bytes()} {
			must(t, binary.Write(&m, binary.NativeEndian, v))
		}
		return m.Bytes()
	}
	want := [][]byte{
		message(3, uint64(0x1122334455667788), uint32(6), uint32(0), []byte("a name\x00")),
		message(2, uint64(7), uint64(0), uint64(0)),
		message(2, uint64(8), uint64(4096), uint64(100)),
		message(2, uint64(9), uint64(4096), uint64(0)),
	}
	for i := range want {
		if len(w.got) != len(want) || !bytes.Equal(w.got[i], want[i]) {
			t.Fatalf("notification %d is % x, want % x", i, w.got[min(i, len(w.got)-1)], want[i])
		}
	}
}
