package fs

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/transport"
)

// fakeSource is a file in memory that counts its readers.
type fakeSource struct {
	mu      sync.Mutex
	content []byte
	version atomic.Uint64
	foreign atomic.Bool
	reads   atomic.Int64
	// accesses counts the requested reads.
	accesses atomic.Int64
	fail     error
	// hold blocks reads until it is closed; nil blocks none.
	hold chan struct{}
}

func (s *fakeSource) Accessed() { s.accesses.Add(1) }

func (s *fakeSource) Peek(ctx context.Context, p []byte, off uint64) (int, error) {
	s.reads.Add(1)
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return 0, s.fail
	}
	if off >= uint64(len(s.content)) {
		return 0, nil
	}
	return copy(p, s.content[off:]), nil
}

func (s *fakeSource) Foreign() bool           { return s.foreign.Load() }
func (s *fakeSource) PinSlot(*transport.Slot) {}

func (s *fakeSource) Version() uint64 { return s.version.Load() }

func (s *fakeSource) Size() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(len(s.content))
}

// change modifies the content as an object does.
func (s *fakeSource) change(fn func(content []byte) []byte) {
	s.version.Add(1)
	s.mu.Lock()
	s.content = fn(s.content)
	s.mu.Unlock()
	s.version.Add(1)
}

// reader is a readAhead of small requests over a source.
type reader struct {
	readAhead
	t      *testing.T
	engine *transport.Engine
}

func newReader(t *testing.T, src source, budget int64) *reader {
	t.Helper()
	engine, err := transport.New(transport.Options{})
	must(t, err)
	r := &reader{t: t, engine: engine}
	r.src, r.slots, r.budget = src, engine.Slots(), &aheadBudget{max: budget}
	r.request, r.window = chunkSize, ahead
	t.Cleanup(func() {
		r.close()
		if n := r.budget.used.Load(); n != 0 {
			t.Errorf("%d bytes of read-ahead are still held", n)
		}
		if n := engine.Stats().PinnedInUse; n != 0 {
			t.Errorf("%v of pinned slots are still held", n)
		}
		must(t, engine.Close())
	})
	return r
}

// at reads and releases the result.
func (r *reader) at(off uint64, n int) []byte {
	r.t.Helper()
	buf := make([]byte, n)
	result, err := r.read(context.Background(), off, buf)
	must(r.t, err)
	return take(result)
}

func take(result fuse.ReadResult) []byte {
	p, _ := result.Bytes(nil)
	p = bytes.Clone(p)
	if result.Size() > 0 {
		result.Done()
	}
	return p
}

const (
	chunkSize = 64 << 10
	ahead     = 4 * chunkSize
	plenty    = int64(maxAhead)
)

func TestReadAheadSequential(t *testing.T) {
	for name, size := range map[string]int{
		"whole chunks": 16 * chunkSize,
		"odd end":      16*chunkSize + 12345,
		"one byte":     1,
		"nothing":      0,
	} {
		t.Run(name, func(t *testing.T) {
			src := &fakeSource{content: pattern(size, 1)}
			for _, step := range []int{chunkSize, chunkSize / 2, 3 * chunkSize / 2, 1000} {
				r := newReader(t, src, plenty)
				var got []byte
				for {
					p := r.at(uint64(len(got)), step)
					got = append(got, p...)
					if len(p) < step {
						break
					}
				}
				if !bytes.Equal(got, src.content) {
					t.Errorf("steps of %d: %d bytes differ from the %d of the file", step, len(got), size)
				}
			}
		})
	}
}

func TestReadAheadIsAhead(t *testing.T) {
	src := &fakeSource{content: pattern(64*chunkSize, 2)}
	r := newReader(t, src, plenty)
	r.at(0, chunkSize)
	r.fetches.Wait()
	if n := src.reads.Load(); n != 1+ahead/chunkSize {
		t.Errorf("%d reads after the first request, want %d", n, 1+ahead/chunkSize)
	}
	r.at(chunkSize, chunkSize)
	r.fetches.Wait()
	if n := src.reads.Load(); n != 2+ahead/chunkSize {
		t.Errorf("%d reads after the second, want one more", n)
	}
}

func TestReadAheadLeavesRandomReadersAlone(t *testing.T) {
	src := &fakeSource{content: pattern(64*chunkSize, 3)}
	r := newReader(t, src, plenty)
	rng := rand.New(rand.NewPCG(1, 2))
	const requests = 500
	for range requests {
		off := 1 + rng.Uint64N(63*chunkSize)
		if p := r.at(off, 4096); !bytes.Equal(p, src.content[off:off+4096]) {
			t.Fatalf("bytes at %d differ", off)
		}
	}
	if n := src.reads.Load(); n != requests {
		t.Errorf("%d reads for %d random requests", n, requests)
	}
	if n := r.budget.used.Load(); n != 0 {
		t.Errorf("random reads hold %d bytes", n)
	}
}

func TestReadAheadNeverServesOldBytes(t *testing.T) {
	src := &fakeSource{content: pattern(32*chunkSize, 4)}
	r := newReader(t, src, plenty)
	for i := range 31 {
		off := uint64(i) * chunkSize
		if got := r.at(off, chunkSize); !bytes.Equal(got, src.content[off:off+chunkSize]) {
			t.Fatalf("chunk %d is not what was written last", i)
		}
		r.fetches.Wait() // the next chunks have been read, and are outdated by this:
		src.change(func(c []byte) []byte { return append([]byte(nil), pattern(len(c), byte(i))...) })
	}
}

func TestReadAheadAfterTruncationAndGrowth(t *testing.T) {
	src := &fakeSource{content: pattern(8*chunkSize, 5)}
	r := newReader(t, src, plenty)
	r.at(0, chunkSize)
	r.fetches.Wait()
	src.change(func(c []byte) []byte { return c[:chunkSize+100] })
	if p := r.at(chunkSize, chunkSize); len(p) != 100 {
		t.Errorf("read %d bytes behind the truncation, want 100", len(p))
	}
	src.change(func(c []byte) []byte { return append(c, pattern(chunkSize, 9)...) })
	if p := r.at(chunkSize+100, chunkSize); len(p) != chunkSize {
		t.Errorf("read %d bytes after the growth, want %d", len(p), chunkSize)
	}
}

func TestReadAheadErrorsWaitUntilTheyAreAskedFor(t *testing.T) {
	src := &fakeSource{content: pattern(8*chunkSize, 6)}
	r := newReader(t, src, plenty)
	src.mu.Lock()
	src.fail = nil
	src.mu.Unlock()
	r.at(0, chunkSize)
	r.fetches.Wait()
	r.drop()
	src.mu.Lock()
	src.fail = errPanicked
	src.mu.Unlock()
	r.mu.Lock()
	r.next = chunkSize
	r.extendLocked(chunkSize)
	r.mu.Unlock()
	r.fetches.Wait()
	src.mu.Lock()
	src.fail = nil
	src.mu.Unlock()
	if p := r.at(chunkSize, chunkSize); !bytes.Equal(p, src.content[chunkSize:2*chunkSize]) {
		t.Error("a failed fetch was not read again")
	}
}

func TestReadAheadWithoutPinnedMemory(t *testing.T) {
	src := &fakeSource{content: pattern(16*chunkSize, 7)}
	r := newReader(t, src, 0)
	for off := uint64(0); off < 16*chunkSize; off += chunkSize {
		if p := r.at(off, chunkSize); !bytes.Equal(p, src.content[off:off+chunkSize]) {
			t.Fatalf("bytes at %d differ", off)
		}
	}
	if n := src.reads.Load(); n != 16 {
		t.Errorf("%d reads, want 16", n)
	}
}

func TestReadAheadInterrupted(t *testing.T) {
	src := &fakeSource{content: pattern(16*chunkSize, 8)}
	r := newReader(t, src, plenty)
	r.at(0, chunkSize)
	r.fetches.Wait()
	r.drop()
	src.hold = make(chan struct{})
	r.mu.Lock()
	r.next = chunkSize
	r.extendLocked(chunkSize)
	r.mu.Unlock()
	cancel := make(chan struct{})
	close(cancel)
	if _, err := r.read(requestContext(cancel), chunkSize, make([]byte, chunkSize)); err == nil {
		t.Error("an interrupted read has no error")
	}
	close(src.hold)
	if p := r.at(chunkSize, chunkSize); !bytes.Equal(p, src.content[chunkSize:2*chunkSize]) {
		t.Error("bytes differ after an interrupted read")
	}
}

// TestReadAheadSettles waits for a window, as long as the context lives.
func TestReadAheadSettles(t *testing.T) {
	src := &fakeSource{content: pattern(16*chunkSize, 9), hold: make(chan struct{})}
	r := newReader(t, src, plenty)
	r.mu.Lock()
	r.extendLocked(0)
	window := r.chunks
	r.mu.Unlock()
	if len(window) == 0 {
		t.Fatal("nothing is read ahead")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.settle(ctx)
	time.AfterFunc(time.Millisecond, func() { close(src.hold) })
	r.settle(t.Context())
	for _, c := range window {
		select {
		case <-c.done:
		default:
			t.Errorf("the chunk at %d is not read", c.off)
		}
	}
}

func TestReadAheadOfManyReadersAndAWriter(t *testing.T) {
	src := &fakeSource{content: bytes.Repeat([]byte{0}, 32*chunkSize)}
	r := newReader(t, src, plenty)
	var least atomic.Int64 // every byte is at least this
	stop := make(chan struct{})
	var writer, readers sync.WaitGroup
	writer.Go(func() {
		for i := int64(1); i < 120; i++ {
			src.change(func(c []byte) []byte { return bytes.Repeat([]byte{byte(i)}, len(c)) })
			least.Store(i)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range 3 {
		readers.Go(func() {
			for off := uint64(0); off < 32*chunkSize; off += chunkSize {
				floor := least.Load()
				for _, b := range r.at(off, chunkSize) {
					if int64(b) < floor {
						t.Errorf("byte %d at %d is older than %d, which was there before the read", b, off, floor)
						return
					}
				}
			}
		})
	}
	readers.Wait()
	close(stop)
	writer.Wait()
}

// TestReadsArePinned reads a card's file from beginning to end: every large copy from the card
// goes to memory that is registered for it.
func TestReadsArePinned(t *testing.T) {
	card, ok := sim.New(0, sim.Params{Size: 64 * devices.MiB, Pinned: true}).(*sim.PinnedDevice)
	if !ok {
		t.Fatal("not a card that registers")
	}
	r := newRigOn(t, card)
	f := r.create(r.root("sim0"), "a")
	want := pattern(16*testRequest, 1)
	f.write(want)
	before, _ := card.Pins()
	for _, off := range []int{7, 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15} {
		at := off * testRequest
		if got := f.readAt(testRequest, uint64(at)); !bytes.Equal(got, want[at:at+testRequest]) {
			t.Errorf("request %d: bytes differ", off)
		}
	}
	f.release()
	after, fault := card.Pins()
	if after.Pageable != before.Pageable || after.Pinned-before.Pinned < 16*testRequest || fault != nil {
		t.Errorf("%+v, then %+v, fault %v", before, after, fault)
	}
}

// TestReadAheadIsNoAccess reads ahead, and then the same bytes: only the requested reads count
// as accesses, so that read-ahead does not overwrite an access time that a program has set.
func TestReadAheadIsNoAccess(t *testing.T) {
	src := &fakeSource{content: pattern(16*chunkSize, 1)}
	r := newReader(t, src, plenty)
	r.at(0, chunkSize)
	r.fetches.Wait()
	if reads, n := src.reads.Load(), src.accesses.Load(); reads < 2 || n != 1 {
		t.Errorf("%d reads ahead and otherwise, %d accesses for 1", reads, n)
	}
	r.at(chunkSize, chunkSize)
	if n := src.accesses.Load(); n != 2 {
		t.Errorf("%d accesses for 2 reads", n)
	}
}
