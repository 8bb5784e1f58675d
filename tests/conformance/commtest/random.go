package commtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// testRandom lets three ranks access each other's memory concurrently with random operations,
// in several goroutines for each pair. Each goroutine has its own part of the memory and knows
// its expected content.
func testRandom(t *testing.T, w Way) {
	steps := 300
	if testing.Short() || kit.Race() {
		steps = 60
	}
	job := w.open(t, 3, nil)
	job.connect(t, 1, 0)
	job.connect(t, 2, 0)
	job.connect(t, 2, 1)
	const workers, part = 2, 200_000
	ctx := within(t)
	var all sync.WaitGroup
	defer all.Wait()
	for from := range 3 {
		for to := range 3 {
			if from == to {
				continue
			}
			remote := job.host(t, to, workers*part)
			d := job.share(t, to, from, remote, both)
			for i := range workers {
				wk := &worker{
					comm: job.ranks[from], peer: wire.Rank(to), local: job.host(t, from, 2*part), remote: d,
					base: uint64(i * part), size: part, model: make([]byte, part),
					random: rand.New(rand.NewPCG(uint64(from*3+to), uint64(i))),
				}
				all.Go(func() {
					for step := range steps {
						if err := wk.step(ctx, uint64(step)); err != nil {
							t.Errorf("rank %d to %d, worker %d, step %d: %v", from, to, i, step, err)
							return
						}
					}
				})
			}
		}
	}
}

// worker has a part of a peer's memory, and a model of it.
type worker struct {
	comm   *comm.Communicator
	peer   wire.Rank
	local  *region.Buffer
	remote wire.Descriptor
	base   uint64
	size   int
	model  []byte
	random *rand.Rand
}

// step puts some random bytes in one of the possible ways, and gets others.
func (w *worker) step(ctx context.Context, step uint64) error {
	var requests []*comm.Request
	off, n := w.place()
	for range 1 + w.random.IntN(3) {
		// Parts of one step don't overlap, since their operations are not ordered.
		if off+n > w.size {
			break
		}
		src := w.local.Host(devices.Offset(off), devices.Size(n))
		kit.FillAt(src, step, int64(off))
		copy(w.model[off:], src)
		r, err := w.comm.PutAsync(ctx, w.peer, w.op(off, off, n))
		if err != nil {
			return err
		}
		requests = append(requests, r)
		off += n
	}
	if w.random.IntN(2) == 0 {
		if err := w.comm.Fence(ctx, w.peer); err != nil {
			return err
		}
	}
	for _, i := range w.random.Perm(len(requests)) {
		if err := requests[i].Wait(ctx); err != nil {
			return err
		}
	}
	off, n = w.place()
	if err := w.comm.Get(ctx, w.peer, w.op(w.size+off, off, n)); err != nil {
		return err
	}
	got := w.local.Host(devices.Offset(w.size+off), devices.Size(n))
	if i := kit.FirstDiff(got, w.model[off:off+n]); i >= 0 {
		return fmt.Errorf("byte %d of %d from %d is not what was put", i, n, off)
	}
	return nil
}

// place returns a random part, often a small one.
func (w *worker) place() (off, n int) {
	n = 1 + w.random.IntN(w.size>>w.random.IntN(16))
	return w.random.IntN(w.size - n + 1), n
}

// op returns an operation of n bytes between a place in the local memory and one of the part.
func (w *worker) op(local, remote, n int) comm.Op {
	return comm.Op{
		Local: w.local, LocalOff: devices.Offset(local), Remote: w.remote, RemoteOff: w.base + uint64(remote), Size: devices.Size(n),
	}
}
