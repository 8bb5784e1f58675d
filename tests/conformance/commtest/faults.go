package commtest

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// putAndTell puts the content of a round and notifies rank 1 of it, in one of the possible ways.
func putAndTell(ctx context.Context, job *world, local *region.Buffer, d wire.Descriptor, round, off int) error {
	n := sizeOf(round)
	p := local.Host(devices.Offset(off), devices.Size(n))
	kit.FillAt(p, uint64(round), 0)
	whole := comm.Op{Local: local, LocalOff: devices.Offset(off), Remote: d, RemoteOff: uint64(off), Size: devices.Size(n)}
	switch round % 3 {
	case 0:
		return job.ranks[0].PutNotify(ctx, 1, whole, wire.Tag(round))
	case 1:
		first, second := whole, whole
		first.Size = devices.Size(n / 2)
		second.LocalOff += devices.Offset(first.Size)
		second.RemoteOff += uint64(first.Size)
		second.Size -= first.Size
		for _, op := range []comm.Op{first, second} {
			if _, err := job.ranks[0].PutAsync(ctx, 1, op); err != nil {
				return err
			}
		}
	default:
		if err := job.ranks[0].Put(ctx, 1, whole); err != nil {
			return err
		}
	}
	return job.ranks[0].SendTag(ctx, 1, wire.Tag(round))
}

// bystander is a pair of ranks whose work must not be disturbed.
type bystander struct {
	job           *world
	a, b          int
	local, remote *region.Buffer
	d             wire.Descriptor
}

func newBystander(t testing.TB, job *world, a, b int) *bystander {
	t.Helper()
	s := &bystander{job: job, a: a, b: b, local: job.host(t, a, 1<<20), remote: job.host(t, b, 1<<20)}
	s.d = job.share(t, b, a, s.remote, both)
	return s
}

// works moves bytes in both directions, and a tag.
func (s *bystander) works(t testing.TB, seed uint64) {
	t.Helper()
	transporttest.Fill(t, s.local, seed)
	op := comm.Op{Local: s.local, Remote: s.d, Size: s.local.Size()}
	if err := s.job.ranks[s.a].PutNotify(within(t), wire.Rank(s.b), op, wire.Tag(seed)); err != nil {
		t.Fatalf("another pair: %v", err)
	}
	if tag, err := s.job.ranks[s.b].RecvTag(within(t), wire.Rank(s.a)); tag != wire.Tag(seed) || err != nil {
		t.Fatalf("another pair: tag %d, %v", tag, err)
	}
	transporttest.Check(t, s.remote, 0, int(s.remote.Size()), seed, 0)
}

func testTakenRank(t *testing.T, w Way) {
	job := w.pair(t)
	if err := job.ranks[1].Connect(within(t), 0, job.at[0]); err != nil {
		t.Errorf("connected already: %v", err)
	}
	if err := job.ranks[1].Connect(within(t), 1, job.at[1]); !errors.Is(err, control.ErrTaken) {
		t.Errorf("to itself: %v", err)
	}
	second := w.rank(t, 1, nil)
	if err := second.Connect(within(t), 0, job.at[0]); !errors.Is(err, control.ErrTaken) {
		t.Errorf("a second rank 1: %v", err)
	}
	newBystander(t, job, 1, 0).works(t, 1)
}

// testBothConnect lets two ranks connect to each other at the same time.
func testBothConnect(t *testing.T, w Way) {
	for range 20 {
		job := w.open(t, 2, nil)
		var all sync.WaitGroup
		for i := range job.ranks {
			all.Go(func() {
				if err := job.ranks[i].Connect(within(t), wire.Rank(1-i), job.at[1-i]); err != nil {
					t.Errorf("rank %d: %v", i, err)
				}
			})
		}
		all.Wait()
		newBystander(t, job, 0, 1).works(t, 1)
		newBystander(t, job, 1, 0).works(t, 2)
		for _, c := range job.ranks {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func testWrongSecret(t *testing.T, w Way) {
	job := w.pair(t)
	other := newBystander(t, job, 1, 0)
	other.works(t, 1)
	wrong := w.rank(t, 2, func(o *comm.Options) { o.Secret, o.TLS = kit.Bytes(99, 0, 32), nil })
	if err := wrong.Connect(within(t), 0, job.at[0]); err == nil {
		t.Error("came in")
	}
	if err := wrong.SendTag(within(t), 0, 1); !errors.Is(err, comm.ErrNotConnected) {
		t.Errorf("a tag: %v", err)
	}
	if len(job.ranks[0].Peers()) != 1 {
		t.Errorf("peers: %+v", job.ranks[0].Peers())
	}
	other.works(t, 2)
}

// testForeignBytes sends garbage to a listener while others work.
func testForeignBytes(t *testing.T, w Way) {
	job := w.pair(t)
	other := newBystander(t, job, 1, 0)
	other.works(t, 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for seed := range uint64(30) {
		c, err := net.Dial(string(job.at[0].Network), job.at[0].Addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(kit.Bytes(seed, 0, 1<<16))
		_ = c.SetReadDeadline(time.Now().Add(patience))
		for err == nil {
			// TLS answers with an alert before it closes the connection.
			_, err = c.Read(make([]byte, 100))
		}
		if os.IsTimeout(err) {
			t.Error("kept")
		}
		_ = c.Close()
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
	other.works(t, 2)
}

// testCutInTheMiddle breaks the connections in the middle of a put: every request fails, the
// keys are void, and a new session works, as do other pairs.
func testCutInTheMiddle(t *testing.T, w Way) {
	job := w.open(t, 3, nil)
	job.connect(t, 2, 1)
	other := newBystander(t, job, 2, 1)
	const size = 64 << 20
	local, remote := job.host(t, 0, size), job.host(t, 1, size)
	between := job.relay(t)
	job.connect(t, 0, 1, between.address())
	d := job.share(t, 1, 0, remote, both)
	var requests []*comm.Request
	for i := range 4 {
		begin := job.ranks[0].PutAsync
		if i%2 == 1 {
			begin = job.ranks[0].GetAsync
		}
		r, err := begin(within(t), 1, comm.Op{Local: local, Remote: d, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, r)
	}
	kit.Eventually(t, patience, func() bool { return w.Beside || between.through() > 4<<20 })
	between.cut()
	for i, r := range requests {
		if err := r.Wait(within(t)); !errors.Is(err, control.ErrDisconnected) && (err != nil || !w.Beside) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if _, err := job.ranks[1].RecvTag(within(t), 0); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("who waits for a tag: %v", err)
	}
	if err := job.ranks[0].Fence(within(t), 1); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("a fence: %v", err)
	}
	if _, err := job.ranks[1].Share(within(t), 0, remote, both); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("shared with nobody: %v", err)
	}
	other.works(t, 3)
	reconnect(t, job, between)
	transporttest.FillPart(t, local, 4, 1<<20)
	op := comm.Op{Local: local, Remote: d, Size: 1 << 20}
	transporttest.FillPart(t, remote, 5, 1<<20)
	if err := job.ranks[0].Put(within(t), 1, op); !errors.Is(err, region.ErrKey) {
		t.Errorf("a key of the last session: %v", err)
	}
	transporttest.Check(t, remote, 0, 1<<20, 5, 0)
	newBystander(t, job, 0, 1).works(t, 6)
	other.works(t, 7)
}

// reconnect connects rank 0 to rank 1 again, as soon as rank 1 has noticed.
func reconnect(t testing.TB, job *world, by *relay) {
	t.Helper()
	kit.Eventually(t, patience, func() error {
		return job.ranks[0].Connect(within(t), 1, by.address())
	})
	if err := job.ranks[1].Await(within(t), 0); err != nil {
		t.Fatal(err)
	}
}

// testStalledPeer makes the network drop everything: a request whose context ends returns that
// error, and the session ends after its timeout.
func testStalledPeer(t *testing.T, w Way) {
	if w.Beside {
		t.Skip("the bytes do not go through the relay; the transport's own tests stop the peer")
	}
	job := w.open(t, 2, func(o *comm.Options) { o.Timeout = 300 * time.Millisecond })
	between := job.relay(t)
	job.connect(t, 0, 1, between.address())
	local, remote := job.host(t, 0, 1<<20), job.host(t, 1, 1<<20)
	d := job.share(t, 1, 0, remote, both)
	between.stop()
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	op := comm.Op{Local: local, Remote: d, Size: 1 << 20}
	if err := job.ranks[0].Put(short, 1, op); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("by the context: %v", err)
	}
	if err := job.ranks[0].SendTag(within(t), 1, 1); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("a tag behind it: %v", err)
	}
	if err := job.ranks[0].Get(within(t), 1, op); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("after the timeout: %v", err)
	}
}

func testMissingPeer(t *testing.T, w Way) {
	job := w.open(t, 1, nil)
	local := job.host(t, 0, 10)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	c := job.ranks[0]
	if err := c.Await(short, 5); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("awaited: %v", err)
	}
	for name, err := range map[string]error{
		"put":        c.Put(within(t), 5, comm.Op{Local: local, Size: 1}),
		"tag":        c.SendTag(within(t), 5, 1),
		"fence":      c.Fence(within(t), 5),
		"disconnect": c.Disconnect(5),
	} {
		if !errors.Is(err, comm.ErrNotConnected) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Flush(within(t)); err != nil {
		t.Errorf("flushed nobody: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Connect(within(t), 1, job.at[0]); !errors.Is(err, comm.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := c.Listen(within(t), w.Address(t)); !errors.Is(err, comm.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// testCloseUnderLoad closes a rank that several goroutines use.
func testCloseUnderLoad(t *testing.T, w Way) {
	job := w.pair(t)
	const size = 4 << 20
	local, remote := job.host(t, 0, size), job.host(t, 1, size)
	d := job.share(t, 1, 0, remote, both)
	var all sync.WaitGroup
	var began sync.WaitGroup
	for range 4 {
		began.Add(1)
		all.Go(func() {
			first := true
			for {
				err := job.ranks[0].Put(within(t), 1, comm.Op{Local: local, Remote: d, Size: size})
				if first {
					began.Done()
					first = false
				}
				if err != nil {
					if !errors.Is(err, control.ErrDisconnected) && !errors.Is(err, comm.ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	began.Wait()
	if err := job.ranks[1].Disconnect(0); err != nil {
		t.Error(err)
	}
	all.Wait()
	if err := local.Store(t.Context(), 0, transport.HostSpan(kit.Bytes(1, 0, size))); err != nil {
		t.Error(err)
	}
	if err := job.ranks[0].Close(); err != nil {
		t.Error(err)
	}
}
