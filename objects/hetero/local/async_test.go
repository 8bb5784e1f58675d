package local_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// AsyncMSetD2H returns while no bytes are moved: the device copies nothing before it has
// returned.
func TestAsyncReturnsBeforeItCopies(t *testing.T) {
	kit.Check(t)
	returned := make(chan struct{})
	var copied atomic.Int64
	d := faulty.Wrap(sim.New(0, sim.Params{Size: 16 * devices.MiB}), func(op faulty.Op) error {
		if op.Kind == faulty.CopyOut {
			<-returned
			copied.Add(int64(op.Bytes))
		}
		return nil
	})
	w := newWorld(t, d)
	p := w.Join(t)
	m := p.Memory(t, "sim0", 4*devices.MiB)
	m.Write(t, 0, kit.Bytes(1, 0, 4<<20))
	b, err := p.Client().AsyncMSetD2H(context.Background(), []string{"k"}, []hetero.DeviceBlobList{{
		Device: "sim0", Blobs: []hetero.Blob{{Memory: m.ID(), Size: 4 * devices.MiB}},
	}}, hetero.SetOptions{})
	close(returned)
	must(t, err)
	r, err := b.Wait(t.Context())
	must(t, err)
	must(t, r.Outcome())
	if copied.Load() != 4<<20 {
		t.Errorf("%d bytes were held up", copied.Load())
	}
}
