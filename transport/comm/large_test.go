package comm_test

import (
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// two is a pair of connected ranks that have only the data connections.
func two(t *testing.T, o transport.Options) [2]*comm.Communicator {
	t.Helper()
	var ranks [2]*comm.Communicator
	for i := range ranks {
		e, err := transport.New(o)
		if err != nil {
			t.Fatal(err)
		}
		ranks[i], err = comm.New(comm.Options{
			Rank: wire.Rank(i), Secret: kit.Bytes(1, 0, 32), Engine: e, Transports: []comm.Transport{comm.TCP},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if cerr := ranks[i].Close(); cerr != nil {
				t.Error(cerr)
			}
			if cerr := e.Close(); cerr != nil {
				t.Error(cerr)
			}
		})
	}
	at, err := ranks[1].Listen(t.Context(), loopback(t))
	if err == nil {
		err = ranks[0].Connect(within(t), 1, at)
	}
	if err == nil {
		err = ranks[1].Await(within(t), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ranks
}

// mutual registers memory of rank 0, and of rank 1, which grants a key to it.
func mutual(t *testing.T, ranks [2]*comm.Communicator, register func(*region.Table) (*region.Buffer, error)) (
	local, remote *region.Buffer, d wire.Descriptor,
) {
	t.Helper()
	var buffers [2]*region.Buffer
	for i, c := range ranks {
		b, err := register(c.Table())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if cerr := b.Close(within(t)); cerr != nil {
				t.Error(cerr)
			}
		})
		buffers[i] = b
	}
	d, err := ranks[1].Share(within(t), 0, buffers[1], both)
	if err != nil {
		t.Fatal(err)
	}
	return buffers[0], buffers[1], d
}

// TestMoreThan4GiB moves more bytes than 32 bits can count, in one put and one
// get. The last page is separate memory: bytes of it that arrive elsewhere, and a
// truncated size, are detected.
func TestMoreThan4GiB(t *testing.T) {
	if kit.Race() || testing.Short() || !kit.Exhaustive() {
		t.Skip("it moves 8 GiB: make check")
	}
	kit.Check(t, kit.Ignore("/hmcfs-"))
	const folds = 4<<30/transporttest.Fold + 1
	ranks := two(t, transport.Options{})
	seed := uint64(0)
	local, remote, d := mutual(t, ranks, func(table *region.Table) (*region.Buffer, error) {
		seed += 10
		return table.Register(transporttest.Folded(t, folds, seed))
	})
	page := int(local.Size()) - folds*transporttest.Fold
	holds := func(b *region.Buffer, seed uint64) {
		t.Helper()
		for _, fold := range []int{0, folds - 1} {
			transporttest.Check(t, b, fold*transporttest.Fold, transporttest.Fold, seed, 0)
		}
		transporttest.Check(t, b, folds*transporttest.Fold, page, seed+1, 0)
	}
	holds(remote, 20)
	op := comm.Op{Local: local, Remote: d, Size: local.Size()}
	if err := ranks[0].PutNotify(within(t), 1, op, 7); err != nil {
		t.Fatal(err)
	}
	if tag, err := ranks[1].RecvTag(within(t), 0); tag != 7 || err != nil {
		t.Fatal(tag, err)
	}
	holds(remote, 10)
	kit.FillAt(remote.Host(0, transporttest.Fold), 30, 0)
	kit.FillAt(remote.Host(folds*transporttest.Fold, devices.Size(page)), 31, 0)
	if err := ranks[0].Get(within(t), 1, op); err != nil {
		t.Fatal(err)
	}
	holds(local, 30)
}

// TestMoreThanTheSlots is the contract's twelfth case: 128 MiB of device memory
// go through 16 MiB of pinned slots, and every byte is at its place.
func TestMoreThanTheSlots(t *testing.T) {
	kit.Check(t, kit.Ignore("/hmcfs-"))
	size := 128 << 20
	if kit.Race() || testing.Short() {
		size = 40 << 20
	}
	ranks := two(t, transport.Options{MaxPinned: 16 * devices.MiB})
	local, remote, d := mutual(t, ranks, func(table *region.Table) (*region.Buffer, error) {
		return table.RegisterDevice(transporttest.Simulated(t, devices.Size(size), sim.Params{}).All())
	})
	transporttest.Fill(t, local, 1)
	op := comm.Op{Local: local, Remote: d, Size: devices.Size(size)}
	if err := ranks[0].Put(within(t), 1, op); err != nil {
		t.Fatal(err)
	}
	transporttest.Check(t, remote, 0, size, 1, 0)
	transporttest.Fill(t, remote, 2)
	if err := ranks[0].Get(within(t), 1, op); err != nil {
		t.Fatal(err)
	}
	transporttest.Check(t, local, 0, size, 2, 0)
}
