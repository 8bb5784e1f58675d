package commtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Run runs the suite.
func Run(t *testing.T, w Way) {
	for name, fn := range map[string]func(t *testing.T, w Way){
		"Sizes":            testSizes,
		"Bounds":           testBounds,
		"Keys":             testKeys,
		"FarOffsets":       testFarOffsets,
		"DeviceMemory":     testDeviceMemory,
		"WaitInAnyOrder":   testWaitInAnyOrder,
		"Fence":            testFence,
		"TagAfterPut":      testTagAfterPut,
		"TwoPeers":         testTwoPeers,
		"Clients":          testClients,
		"Striped":          testStriped,
		"NoWorkOnDataPath": testNoWorkOnDataPath,
		"TakenRank":        testTakenRank,
		"BothConnect":      testBothConnect,
		"WrongSecret":      testWrongSecret,
		"ForeignBytes":     testForeignBytes,
		"Random":           testRandom,
		"CutInTheMiddle":   testCutInTheMiddle,
		"StalledPeer":      testStalledPeer,
		"MissingPeer":      testMissingPeer,
		"CloseUnderLoad":   testCloseUnderLoad,
		"RevokeUnderLoad":  testRevokeUnderLoad,
		"OwnerCloses":      testOwnerCloses,
		"Rights":           testRights,
		"Tags":             testTags,
		"NewSession":       testNewSession,
		"Files":            testFiles,
		"Windows":          testWindows,
		"ManyShares":       testManyShares,
		"RemoteSpans":      testRemoteSpans,
		"RemoteErrors":     testRemoteErrors,
		"RemoteIsCut":      testRemoteIsCut,
		"LentFile":         testLentFile,
	} {
		t.Run(name, func(t *testing.T) {
			// A rank mounts nothing; other tests of the same run mount meanwhile, below
			// directories with this name.
			kit.Check(t, kit.Ignore("/hmcfs-"))
			fn(t, w)
		})
	}
}

func testSizes(t *testing.T, w Way) {
	job := w.pair(t)
	most := large(5 << 20)
	size := most + 99
	local, remote := job.host(t, 0, devices.Size(size)), job.host(t, 1, devices.Size(size))
	d := job.share(t, 1, 0, remote, both)
	transporttest.Fill(t, local, 1)
	transporttest.Fill(t, remote, 2)
	for _, n := range []int{0, 1, 4095, 4096, 65_537, 1 << 20, 1<<20 + 1, most} {
		op := comm.Op{Local: local, LocalOff: 33, Remote: d, RemoteOff: 55, Size: devices.Size(n)}
		if err := job.ranks[0].Put(within(t), 1, op); err != nil {
			t.Fatal(err)
		}
		transporttest.Check(t, remote, 0, 55, 2, 0)
		transporttest.Check(t, remote, 55, n, 1, 33)
		transporttest.Check(t, remote, 55+n, size-55-n, 2, 55+n)
		transporttest.Fill(t, remote, 2)
		op.LocalOff, op.RemoteOff = 11, 44
		if err := job.ranks[0].Get(within(t), 1, op); err != nil {
			t.Fatal(err)
		}
		transporttest.Check(t, local, 0, 11, 1, 0)
		transporttest.Check(t, local, 11, n, 2, 44)
		transporttest.Check(t, local, 11+n, size-11-n, 1, 11+n)
		transporttest.Fill(t, local, 1)
	}
}

// testBounds tries every access outside a region, once as an honest rank, which is refused
// locally, and once with a forged descriptor.
func testBounds(t *testing.T, w Way) {
	job := w.pair(t)
	const size = 1 << 20
	local, remote := job.host(t, 0, size), job.host(t, 1, size)
	d := job.share(t, 1, 0, remote, both)
	forged := d
	forged.Size = math.MaxInt64
	transporttest.Fill(t, local, 1)
	transporttest.Fill(t, remote, 2)
	for _, op := range []comm.Op{
		{RemoteOff: size, Size: 1},
		{RemoteOff: size - 1, Size: 2},
		{RemoteOff: size + 1},
		{RemoteOff: math.MaxUint64 - 1, Size: 2},
		{RemoteOff: math.MaxUint64, Size: 1},
		{RemoteOff: math.MaxInt64 - 1, Size: 1},
		{LocalOff: size, Size: 1},
		{LocalOff: 1, Size: size},
		{LocalOff: math.MaxUint64 - 1, Size: 2},
		{Size: math.MaxUint64},
	} {
		for _, descriptor := range []wire.Descriptor{d, forged} {
			op.Local, op.Remote = local, descriptor
			if op.Size == 0 && descriptor == forged {
				continue // moves nothing, so no request is sent
			}
			if err := job.ranks[0].Put(within(t), 1, op); !errors.Is(err, devices.ErrRange) {
				t.Errorf("put %+v: %v", op, err)
			}
			if err := job.ranks[0].Get(within(t), 1, op); !errors.Is(err, devices.ErrRange) {
				t.Errorf("get %+v: %v", op, err)
			}
		}
	}
	transporttest.Check(t, local, 0, size, 1, 0)
	transporttest.Check(t, remote, 0, size, 2, 0)
	whole := comm.Op{Local: local, Remote: d, Size: size}
	if err := job.ranks[0].Put(within(t), 1, whole); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	transporttest.Check(t, remote, 0, size, 1, 0)
}

func testKeys(t *testing.T, w Way) {
	job := w.open(t, 3, nil)
	job.connect(t, 0, 1)
	job.connect(t, 2, 1)
	const size = 100_000
	local, remote := job.host(t, 0, size), job.host(t, 1, size)
	full, reading := job.share(t, 1, 0, remote, both), job.share(t, 1, 0, remote, wire.Readable)
	others := job.share(t, 1, 2, remote, both)
	transporttest.Fill(t, local, 1)
	transporttest.Fill(t, remote, 2)
	bold := reading
	bold.Rights = both
	guessed := full
	guessed.Key++
	for name, tc := range map[string]struct {
		d    wire.Descriptor
		want error
	}{
		"of another rank": {others, region.ErrKey}, "guessed": {guessed, region.ErrKey},
		"read only, honest": {reading, region.ErrRights}, "read only, forged": {bold, region.ErrRights},
	} {
		if err := job.ranks[0].Put(within(t), 1, comm.Op{Local: local, Remote: tc.d, Size: size}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	transporttest.Check(t, remote, 0, size, 2, 0)
	if err := job.ranks[1].Revoke(within(t), 0, full.Key); err != nil {
		t.Fatal(err)
	}
	if err := job.ranks[0].Get(within(t), 1, comm.Op{Local: local, Remote: full, Size: size}); !errors.Is(err, region.ErrKey) {
		t.Errorf("revoked: %v", err)
	}
	transporttest.Check(t, local, 0, size, 1, 0)
	if err := job.ranks[0].Get(within(t), 1, comm.Op{Local: local, Remote: reading, Size: size}); err != nil {
		t.Errorf("the other key: %v", err)
	}
	transporttest.Check(t, local, 0, size, 2, 0)
}

// testFarOffsets uses a region of 6 GiB of which only some pages exist.
func testFarOffsets(t *testing.T, w Way) {
	job := w.pair(t)
	const n, far = 3 << 20, 4<<30 - 1<<20
	mem, err := unix.Mmap(-1, 0, 6<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if merr := unix.Munmap(mem); merr != nil {
			t.Error(merr)
		}
	})
	b, err := job.ranks[1].Table().Register(mem)
	remote := closing(t, b, err)
	d := job.share(t, 1, 0, remote, both)
	local := job.host(t, 0, n)
	transporttest.Fill(t, local, 3)
	op := comm.Op{Local: local, Remote: d, RemoteOff: far, Size: n}
	if err := job.ranks[0].Put(within(t), 1, op); err != nil {
		t.Fatal(err)
	}
	transporttest.Check(t, remote, far, n, 3, 0)
	transporttest.Fill(t, local, 4)
	if err := job.ranks[0].Get(within(t), 1, op); err != nil {
		t.Fatal(err)
	}
	transporttest.Check(t, local, 0, n, 3, 0)
}

func testDeviceMemory(t *testing.T, w Way) {
	size := devices.Size(large(6<<20) + 5)
	for name, ends := range map[string][2]func(*world, testing.TB, int, devices.Size) *region.Buffer{
		"to a device": {(*world).host, (*world).sim}, "from a device": {(*world).sim, (*world).host},
		"between devices": {(*world).sim, (*world).sim},
	} {
		t.Run(name, func(t *testing.T) {
			job := w.pair(t)
			local, remote := ends[0](job, t, 0, size), ends[1](job, t, 1, size)
			d := job.share(t, 1, 0, remote, both)
			transporttest.Fill(t, local, 1)
			transporttest.Fill(t, remote, 2)
			op := comm.Op{Local: local, LocalOff: 5, Remote: d, RemoteOff: 7, Size: size - 10}
			if err := job.ranks[0].PutNotify(within(t), 1, op, 9); err != nil {
				t.Fatal(err)
			}
			if tag, err := job.ranks[1].RecvTag(within(t), 0); tag != 9 || err != nil {
				t.Fatal(tag, err)
			}
			transporttest.Check(t, remote, 7, int(size)-10, 1, 5)
			transporttest.Fill(t, local, 3)
			if err := job.ranks[0].Get(within(t), 1, op); err != nil {
				t.Fatal(err)
			}
			transporttest.Check(t, local, 5, int(size)-10, 1, 5)
			transporttest.Check(t, local, 0, 5, 3, 0)
		})
	}
}

// testTwoPeers first waits for the later of two requests to two peers; both requests have the
// same number on their connections.
func testTwoPeers(t *testing.T, w Way) {
	job := w.open(t, 3, nil)
	job.connect(t, 0, 1)
	job.connect(t, 2, 0)
	const size = 2 << 20
	local := job.host(t, 0, size)
	transporttest.Fill(t, local, 1)
	var remotes [3]*region.Buffer
	var all [3]*comm.Request
	for _, peer := range []int{1, 2} {
		remotes[peer] = job.host(t, peer, size)
		d := job.share(t, peer, 0, remotes[peer], both)
		r, err := job.ranks[0].PutAsync(within(t), wire.Rank(peer), comm.Op{Local: local, Remote: d, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		all[peer] = r
	}
	for _, peer := range []int{2, 1, 2} {
		if err := all[peer].Wait(within(t)); err != nil {
			t.Errorf("rank %d: %v", peer, err)
		}
		transporttest.Check(t, remotes[peer], 0, size, 1, 0)
	}
	if err := job.ranks[0].Flush(within(t)); err != nil {
		t.Error(err)
	}
	if peers := job.ranks[0].Peers(); len(peers) != 2 || peers[0].Rank != 1 || peers[1].Rank != 2 {
		t.Errorf("peers: %+v", peers)
	}
}

// testNoWorkOnDataPath requires that no connection or registration is created and nothing is
// allocated while thousands of operations run, for all kinds of memory at the two ends.
func testNoWorkOnDataPath(t *testing.T, w Way) {
	job := w.pair(t)
	const size = 100_000
	ctx := within(t)
	for _, local := range []*region.Buffer{job.host(t, 0, size), job.sim(t, 0, size)} {
		for _, remote := range []*region.Buffer{job.host(t, 1, size), job.sim(t, 1, size)} {
			d := job.share(t, 1, 0, remote, both)
			var before [2]comm.Stats
			var registered [2]region.Stats
			for i, c := range job.ranks {
				before[i], registered[i] = c.Stats(), c.Table().Stats()
			}
			for _, n := range []devices.Size{8, size} {
				allocs := allocations(ctx, t, job.ranks[0], comm.Op{Local: local, Remote: d, Size: n})
				if allocs != 0 && !kit.Race() && !w.Allocates {
					t.Errorf("%v between %q and %q: %v allocations", n, local.Device(), remote.Device(), allocs)
				}
			}
			for i, c := range job.ranks {
				if c.Stats() != before[i] || c.Table().Stats() != registered[i] {
					t.Errorf("rank %d: %+v, %+v became %+v, %+v", i, before[i], registered[i], c.Stats(), c.Table().Stats())
				}
			}
		}
	}
}

// allocations returns the number of allocations of the process for a put and a get.
func allocations(ctx context.Context, t *testing.T, rank *comm.Communicator, op comm.Op) float64 {
	t.Helper()
	runs := 200
	if kit.Exhaustive() {
		runs = 1000
	}
	return testing.AllocsPerRun(runs, func() {
		if err := rank.Put(ctx, 1, op); err != nil {
			t.Error(err)
		}
		if err := rank.Get(ctx, 1, op); err != nil {
			t.Error(err)
		}
	})
}

func testFence(t *testing.T, w Way) {
	job := w.pair(t)
	const parts = 20
	part := large(300_000)
	local, remote := job.host(t, 0, devices.Size(part*parts)), job.host(t, 1, devices.Size(part*parts))
	d := job.share(t, 1, 0, remote, both)
	for round := range uint64(5) {
		transporttest.Fill(t, local, round)
		var requests []*comm.Request
		for i := range parts {
			r, err := job.ranks[0].PutAsync(within(t), 1, comm.Op{
				Local: local, LocalOff: devices.Offset(i * part), Remote: d, RemoteOff: uint64(i * part), Size: devices.Size(part),
			})
			if err != nil {
				t.Fatal(err)
			}
			requests = append(requests, r)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := job.ranks[0].Fence(within(t), 1); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for i, r := range requests {
			if done, err := r.Test(); !done || err != nil {
				t.Errorf("request %d after the fence: %v, %v", i, done, err)
			}
		}
		transporttest.Check(t, remote, 0, part*parts, round, 0)
	}
}

func testWaitInAnyOrder(t *testing.T, w Way) {
	job := w.pair(t)
	const part, parts = 10_000, 100
	local, remote := job.host(t, 0, part*parts), job.host(t, 1, part*parts)
	d := job.share(t, 1, 0, remote, both)
	transporttest.Fill(t, remote, 1)
	requests := make([]*comm.Request, parts)
	for i := range parts {
		r, err := job.ranks[0].GetAsync(within(t), 1, comm.Op{
			Local: local, LocalOff: devices.Offset(i * part), Remote: d, RemoteOff: uint64(i * part), Size: part,
		})
		if err != nil {
			t.Fatal(err)
		}
		requests[i] = r
	}
	// Backwards, only every third one, some twice and by two at once.
	for i := parts - 1; i >= 0; i -= 3 {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := requests[i].Wait(within(t)); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if done, err := requests[i].Test(); !done || err != nil {
			t.Errorf("request %d: %v, %v", i, done, err)
		}
		transporttest.Check(t, local, i*part, part, 1, i*part)
	}
	if err := job.ranks[0].Fence(within(t), 1); err != nil {
		t.Fatal(err)
	}
	transporttest.Check(t, local, 0, part*parts, 1, 0)
}

// testTagAfterPut sends tags after puts of changing data, as many as can be in flight, and
// checks the bytes when the tag has arrived.
func testTagAfterPut(t *testing.T, w Way) {
	rounds := 4000
	switch {
	case kit.Race():
		rounds = 2000
	case kit.Exhaustive():
		rounds = 100_000
	}
	job := w.pair(t)
	const slots, most = 64, 3000
	local, remote := job.host(t, 0, slots*most), job.host(t, 1, slots*most)
	d := job.share(t, 1, 0, remote, both)
	ctx, stop := context.WithCancel(kit.Context(t, 10*patience)) // a busy machine takes minutes for all rounds
	defer stop()
	var receiver sync.WaitGroup
	defer receiver.Wait()
	receiver.Go(func() {
		// A failure ends the wait of the other side.
		defer func() {
			if t.Failed() {
				stop()
			}
		}()
		for i := range rounds {
			if err := lookAfterTag(ctx, job, remote, i, (i%slots)*most); err != nil {
				t.Errorf("round %d: %v", i, err)
				return
			}
			// A slot is overwritten only after all slots of its half were checked.
			if i%(slots/2) == slots/2-1 {
				if err := job.ranks[1].SendTag(ctx, 0, wire.Tag(i)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for i := range rounds {
		if i >= slots && i%(slots/2) == 0 {
			if tag, err := job.ranks[0].RecvTag(ctx, 1); err != nil {
				t.Errorf("credit %d: %v", tag, err)
				return
			}
		}
		if err := putAndTell(ctx, job, local, d, i, (i%slots)*most); err != nil {
			t.Error(err)
			return
		}
	}
}

// lookAfterTag receives the tag of a round and checks its bytes.
func lookAfterTag(ctx context.Context, job *world, remote *region.Buffer, round, off int) error {
	tag, err := job.ranks[1].RecvTag(ctx, 0)
	if err != nil || tag != wire.Tag(round) {
		return fmt.Errorf("tag %d: %w", tag, err)
	}
	p := remote.Host(devices.Offset(off), devices.Size(sizeOf(round)))
	if at := kit.DiffAt(p, uint64(round), 0); at >= 0 {
		return fmt.Errorf("byte %d of %d is old", at, len(p))
	}
	return nil
}

// sizeOf returns the number of bytes of a round.
func sizeOf(round int) int { return 8 + round*37%2900 }
