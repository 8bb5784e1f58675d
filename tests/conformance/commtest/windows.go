package commtest

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// putters put to a region until they fail; some wait for their puts, and some don't.
type putters struct {
	all    sync.WaitGroup
	mu     sync.Mutex
	errors []error
}

// startPutters returns when each has put once.
func startPutters(t *testing.T, job *world, d wire.Descriptor) *putters {
	t.Helper()
	p := &putters{}
	var began sync.WaitGroup
	for i, n := range []devices.Size{64, 64 << 10, devices.Size(d.Size), devices.Size(d.Size)} {
		local := job.host(t, 0, devices.Size(d.Size))
		op := comm.Op{Local: local, Remote: d, RemoteOff: d.Size - uint64(n), Size: n}
		began.Add(1)
		p.all.Go(func() {
			defer began.Done()
			err := p.put(t, job, op, i == 3)
			if err != nil {
				t.Error(err)
				return
			}
			p.all.Go(func() {
				for err == nil {
					err = p.put(t, job, op, i == 3)
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				p.errors = append(p.errors, err)
			})
		})
	}
	began.Wait()
	return p
}

// put puts once, or with several requests at a time.
func (p *putters) put(t *testing.T, job *world, op comm.Op, several bool) error {
	t.Helper()
	if !several {
		return job.ranks[0].Put(within(t), 1, op)
	}
	var requests []*comm.Request
	var errs []error
	for range 3 {
		r, err := job.ranks[0].PutAsync(within(t), 1, op)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		requests = append(requests, r)
	}
	for _, r := range requests {
		errs = append(errs, r.Wait(within(t)))
	}
	return errors.Join(errs...)
}

// ended waits for all putters, and requires each to have failed with the given error.
func (p *putters) ended(t *testing.T, want error) {
	t.Helper()
	p.all.Wait()
	for _, err := range p.errors {
		if !errors.Is(err, want) {
			t.Errorf("a put ended with %v, want %v", err, want)
		}
	}
}

// testRevokeUnderLoad revokes a key while puts run: when Revoke returns, only the owner accesses
// the memory.
func testRevokeUnderLoad(t *testing.T, w Way) {
	job := w.pair(t)
	size := large(8 << 20)
	remote := job.host(t, 1, devices.Size(size))
	for round := range uint64(3) {
		d := job.share(t, 1, 0, remote, both)
		running := startPutters(t, job, d)
		if err := job.ranks[1].Revoke(within(t), 0, d.Key); err != nil {
			t.Fatal(err)
		}
		transporttest.Fill(t, remote, round+9)
		running.ended(t, region.ErrKey)
		transporttest.Check(t, remote, 0, size, round+9, 0)
	}
	newBystander(t, job, 0, 1).works(t, 1)
}

// testOwnerCloses closes a buffer while a peer puts to it: Close does not wait for the peer to
// stop.
func testOwnerCloses(t *testing.T, w Way) {
	job := w.pair(t)
	b, err := job.ranks[1].Table().Alloc(devices.Size(large(8 << 20)))
	remote := closing(t, b, err)
	d := job.share(t, 1, 0, remote, both)
	again := job.share(t, 1, 0, remote, wire.Readable)
	running := startPutters(t, job, d)
	if err := remote.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	running.ended(t, region.ErrKey)
	local := job.host(t, 0, 10)
	if err := job.ranks[0].Get(within(t), 1, comm.Op{Local: local, Remote: again, Size: 10}); !errors.Is(err, region.ErrKey) {
		t.Errorf("the other key: %v", err)
	}
	newBystander(t, job, 0, 1).works(t, 1)
}

// testRights uses keys for operations that they don't permit, with descriptors that claim that
// they do.
func testRights(t *testing.T, w Way) {
	job := w.pair(t)
	const size = 100_000
	local, remote := job.host(t, 0, size), job.host(t, 1, size)
	transporttest.Fill(t, local, 1)
	transporttest.Fill(t, remote, 2)
	readable, writable := job.share(t, 1, 0, remote, wire.Readable), job.share(t, 1, 0, remote, wire.Writable)
	readable.Rights, writable.Rights = both, both
	if err := job.ranks[0].Put(within(t), 1, comm.Op{Local: local, Remote: readable, Size: size}); !errors.Is(err, region.ErrRights) {
		t.Errorf("put by a key to read: %v", err)
	}
	if err := job.ranks[0].Get(within(t), 1, comm.Op{Local: local, Remote: writable, Size: size}); !errors.Is(err, region.ErrRights) {
		t.Errorf("get by a key to write: %v", err)
	}
	transporttest.Check(t, local, 0, size, 1, 0)
	transporttest.Check(t, remote, 0, size, 2, 0)
	if err := job.ranks[0].Get(within(t), 1, comm.Op{Local: local, Remote: readable, Size: size / 2}); err != nil {
		t.Error(err)
	}
	transporttest.Check(t, local, 0, size/2, 2, 0)
	if err := job.ranks[0].Put(within(t), 1, comm.Op{Local: local, LocalOff: size / 2, Remote: writable, Size: size / 2}); err != nil {
		t.Error(err)
	}
	transporttest.Check(t, remote, 0, size/2, 1, size/2)
}

// testTags fills every queue between two ranks: senders wait, nothing is lost or overtaken, and
// tags sent before the end are received after it.
func testTags(t *testing.T, w Way) {
	job := w.pair(t)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := job.ranks[1].RecvTag(short, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("received what nobody sent: %v", err)
	}
	sent := wire.Tag(0)
	full, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for {
		if err := job.ranks[0].SendTag(full, 1, sent); err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("tag %d: %v", sent, err)
			}
			break
		}
		sent++
	}
	for i := range sent {
		if tag, err := job.ranks[1].RecvTag(within(t), 0); tag != i || err != nil {
			t.Fatalf("tag %d of %d: %d, %v", i, sent, tag, err)
		}
	}
	receiveAtOnce(t, job)
	if err := job.ranks[0].Disconnect(1); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, patience, func() bool { return len(job.ranks[1].Peers()) == 0 })
	for i := range wire.Tag(10) {
		if tag, err := job.ranks[1].RecvTag(within(t), 0); tag != i+4 || err != nil {
			t.Errorf("after the end: tag %d, %v", tag, err)
		}
	}
	if _, err := job.ranks[1].RecvTag(within(t), 0); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("behind the last: %v", err)
	}
	if err := job.ranks[0].SendTag(within(t), 1, 1); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("sent after the end: %v", err)
	}
}

// receiveAtOnce has several receivers wait, which are served one after the other, and leaves 10
// tags.
func receiveAtOnce(t *testing.T, job *world) {
	t.Helper()
	var receivers sync.WaitGroup
	var got sync.Map
	for range 4 {
		receivers.Go(func() {
			tag, err := job.ranks[1].RecvTag(within(t), 0)
			if _, twice := got.LoadOrStore(tag, true); err != nil || twice {
				t.Errorf("tag %d: %v, twice %v", tag, err, twice)
			}
		})
	}
	for i := range wire.Tag(4 + 10) {
		if err := job.ranks[0].SendTag(within(t), 1, i); err != nil {
			t.Fatal(err)
		}
	}
	receivers.Wait()
}

// testNewSession ends a session and creates another: keys of the first are void.
func testNewSession(t *testing.T, w Way) {
	job := w.pair(t)
	const size = 1 << 20
	local, remote := job.host(t, 0, size), job.host(t, 1, size)
	old := job.share(t, 1, 0, remote, both)
	running := startPutters(t, job, old)
	if err := job.ranks[1].Disconnect(0); err != nil {
		t.Fatal(err)
	}
	running.ended(t, control.ErrDisconnected)
	kit.Eventually(t, patience, func() error { return job.ranks[0].Connect(within(t), 1, job.at[1]) })
	if err := job.ranks[1].Await(within(t), 0); err != nil {
		t.Fatal(err)
	}
	transporttest.Fill(t, remote, 5)
	for _, n := range []devices.Size{8, size} {
		if err := job.ranks[0].Put(within(t), 1, comm.Op{Local: local, Remote: old, Size: n}); !errors.Is(err, region.ErrKey) {
			t.Errorf("%v by a key of the last session: %v", n, err)
		}
	}
	transporttest.Check(t, remote, 0, size, 5, 0)
	newBystander(t, job, 0, 1).works(t, 6)
}

// file returns n bytes of a rank's file, from an odd offset on.
func (w *world) file(t *testing.T, rank int, n devices.Size) (*os.File, *region.Buffer) {
	t.Helper()
	f := kit.Memfd(t, 77, int(n)+5000)
	b, err := w.ranks[rank].Table().RegisterFile("host", f, 4097, n)
	return f, closing(t, b, err)
}

// testFiles moves bytes between files, and from a file that was truncated: that is an error, and
// no process is killed by it.
func testFiles(t *testing.T, w Way) {
	job := w.pair(t)
	size := large(6 << 20)
	_, local := job.file(t, 0, devices.Size(size))
	f, remote := job.file(t, 1, devices.Size(size))
	d := job.share(t, 1, 0, remote, both)
	transporttest.Fill(t, local, 1)
	op := comm.Op{Local: local, LocalOff: 3, Remote: d, RemoteOff: 5, Size: devices.Size(size - 10)}
	if err := job.ranks[0].Put(within(t), 1, op); err != nil {
		t.Fatal(err)
	}
	transporttest.Check(t, remote, 5, size-10, 1, 3)
	transporttest.Fill(t, remote, 2)
	if err := job.ranks[0].Get(within(t), 1, op); err != nil {
		t.Fatal(err)
	}
	transporttest.Check(t, local, 3, size-10, 2, 5)
	if err := f.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	err := job.ranks[0].Get(within(t), 1, op)
	if !errors.Is(err, devices.ErrRange) && !errors.Is(err, devices.ErrDevice) {
		t.Errorf("from a file that was cut: %v", err)
	}
	if w.Transport == comm.SHM {
		if err := job.ranks[0].Put(within(t), 1, op); !errors.Is(err, devices.ErrRange) {
			t.Errorf("to a file that was cut: %v", err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Size != 1<<20 {
			t.Errorf("the file has %d bytes again: %v", st.Size, err)
		}
	}
	newBystander(t, job, 0, 1).works(t, 3)
}

// testWindows counts the windows open at the peer: as many as the transport supports, and none
// after they were revoked.
func testWindows(t *testing.T, w Way) {
	if w.Transport != comm.SHM {
		return
	}
	job := w.pair(t)
	host, sim := job.host(t, 1, 10_000), job.sim(t, 1, 10_000)
	_, file := job.file(t, 1, 10_000)
	plain, err := job.ranks[1].Table().Register(make([]byte, 10_000))
	plain = closing(t, plain, err)
	alias, err := job.ranks[1].Table().Register(host.Host(4099, 17))
	alias = closing(t, alias, err)
	local := job.host(t, 0, 10_000)
	transporttest.Fill(t, local, 1)
	want := 0
	var keys []wire.Key
	for _, b := range []*region.Buffer{host, sim, file, alias, plain} {
		d := job.share(t, 1, 0, b, both)
		if b != plain {
			want++
		}
		if have := job.ranks[0].Peers()[0].Windows; have != want {
			t.Errorf("%d windows, want %d", have, want)
		}
		keys = append(keys, d.Key)
		transporttest.Fill(t, b, 2)
		op := comm.Op{Local: local, LocalOff: 7, Remote: d, RemoteOff: 3, Size: 11}
		if err := job.ranks[0].Put(within(t), 1, op); err != nil {
			t.Fatal(err)
		}
		transporttest.Check(t, b, 0, 3, 2, 0)
		transporttest.Check(t, b, 3, 11, 1, 7)
		transporttest.Check(t, b, 14, 3, 2, 14)
	}
	for _, key := range keys {
		if err := job.ranks[1].Revoke(within(t), 0, key); err != nil {
			t.Error(err)
		}
	}
	if have := job.ranks[0].Peers()[0].Windows; have != 0 {
		t.Errorf("%d windows are left", have)
	}
}
