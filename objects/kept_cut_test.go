package objects_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestKilledAfterACut kills a store into which another node was writing when the network was cut: what was not written
// has its bytes, and the node can write the rest again.
func TestKilledAfterACut(t *testing.T) {
	const n, from = 400_000, 100_000
	old, later := kit.Bytes(1, 0, n), kit.Bytes(2, 0, 200_000)
	k := newKeptRig(t, small(false))
	f := k.create("sim0", "f")
	k.write(f, 0, old)
	k.close(f) // so that it has a record
	f = k.rig.open(f.Ino())
	m := &far{engine: k.engine, bytes: later, breaks: 1}
	if _, err := f.CopyIn(k.ctx(), m.span(), objects.Write{Off: from}); !errors.Is(err, errCut) {
		t.Fatalf("a write that is cut: %v", err)
	}
	if _, err := f.ReadAt(k.ctx(), make([]byte, 10), from); !errors.Is(err, objects.ErrDamaged) {
		t.Errorf("bytes that may be new or old: %v", err)
	}
	k.kill()
	again := k.rig.open(f.Ino())
	for _, part := range [][2]int{{0, from}, {from + len(later), n}} {
		if got := k.read(again, uint64(part[0]), part[1]-part[0]); !bytes.Equal(got, old[part[0]:part[1]]) {
			t.Errorf("the %d bytes at %d differ at %d", len(got), part[0], kit.FirstDiff(got, old[part[0]:part[1]]))
		}
	}
	m = &far{engine: k.engine, bytes: later}
	if _, err := again.CopyIn(k.ctx(), m.span(), objects.Write{Off: from}); err != nil {
		t.Error(err)
	}
	if got := k.read(again, from, len(later)); !bytes.Equal(got, later) {
		t.Errorf("the bytes written again differ at %d", kit.FirstDiff(got, later))
	}
	k.close(again)
}
