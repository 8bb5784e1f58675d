package commtest

import (
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// testClients connects two ranks of one host, which don't listen and so have no address, to a
// third one: both stay connected.
func testClients(t *testing.T, w Way) {
	job := w.open(t, 1, nil)
	for rank := range wire.Rank(2) {
		job.ranks = append(job.ranks, w.rank(t, rank+1, nil))
		job.connect(t, int(rank+1), 0)
	}
	first, second := newBystander(t, job, 1, 0), newBystander(t, job, 2, 0)
	for seed := range uint64(4) {
		first.works(t, 2*seed+1)
		second.works(t, 2*seed+2)
	}
	newBystander(t, job, 0, 1).works(t, 20)
	newBystander(t, job, 0, 2).works(t, 21)
	var ranks []wire.Rank
	for _, p := range job.ranks[0].Peers() {
		ranks = append(ranks, p.Rank)
	}
	if !slices.Equal(ranks, []wire.Rank{1, 2}) {
		t.Errorf("connected are %v", ranks)
	}
}

// testStriped counts the bytes on each connection: a transfer is striped only if each connection
// carries at least 512 KiB of it, and large transfers use all connections.
func testStriped(t *testing.T, w Way) {
	if w.Beside {
		t.Skip("the bytes do not go by data connections")
	}
	const channels, half = 4, 512 << 10
	job := w.open(t, 2, func(o *comm.Options) { o.Channels, o.Chunk = channels, 64<<10 })
	between := job.relay(t)
	job.connect(t, 0, 1, between.address())
	local, remote := job.host(t, 0, 64<<20), job.host(t, 1, 64<<20)
	d := job.share(t, 1, 0, remote, both)
	// put returns the number of connections that carried a part of it.
	put := func(n int) (used int) {
		before := between.each()
		if err := job.ranks[0].Put(within(t), 1, comm.Op{Local: local, Remote: d, Size: devices.Size(n)}); err != nil {
			t.Fatal(err)
		}
		for i, moved := range between.each() {
			// Ignore the headers of frames, and the messages of an idle session.
			if moved-before[i] > 16<<10 {
				used++
			}
		}
		return used
	}
	for round := range uint64(2 * channels) {
		transporttest.FillPart(t, local, round, 2*half)
		if used := put(2*half - 1); used != 1 {
			t.Errorf("%d connections carried less than two times 512 KiB", used)
		}
		transporttest.Check(t, remote, 0, 2*half-1, round, 0)
	}
	// The share of each connection depends on which one is free.
	kit.Eventually(t, patience, func() bool { return put(64<<20) == channels })
}
