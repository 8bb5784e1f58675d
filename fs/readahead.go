package fs

import (
	"context"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

const (
	// bulkRead is the size from which a single sequential request starts read-ahead; of
	// smaller requests, smallRun in a row are needed.
	bulkRead = 32 << 10
	smallRun = 8
	// pinnedRead is the size from which a read that was not read ahead uses pinned memory,
	// which is then worth the access to the pool.
	pinnedRead = 128 << 10
	// idleWindow is the time a reader may pause before its window is dropped.
	idleWindow = 2 * time.Second
)

// readAhead reads one open file ahead. Under direct I/O the kernel sends one request after
// the other, so while it copies one, the next ones are already in transfer from the device.
//
// A chunk is used only if the file has not changed since before the chunk was read, so no
// reader sees older bytes than without read-ahead.
type readAhead struct {
	src    source
	slots  *transport.SlotPool
	budget *aheadBudget
	// request is the size of a chunk.
	request int
	// window is the number of bytes to read ahead.
	window int

	mu sync.Mutex
	// next is the offset at which a sequential reader continues.
	// +checklocks:mu
	next uint64
	// run counts the consecutive requests that started where the previous one had ended.
	// +checklocks:mu
	run int
	// chunks is the window, in order and without gaps.
	// +checklocks:mu
	chunks []*chunk
	// ctx is the context of the fetches in progress; it ends with the window.
	// +checklocks:mu
	ctx context.Context //nolint:containedctx // it is the lifetime of the window
	// +checklocks:mu
	cancel context.CancelFunc
	// idle drops the window of a reader that pauses.
	// +checklocks:mu
	idle *time.Timer
	// +checklocks:mu
	closed bool

	fetches sync.WaitGroup
}

// init prepares read-ahead for a file that was just opened.
func (r *readAhead) init(f *filesystem, src source) {
	r.src = src
	r.slots = f.slots
	r.budget = &f.ahead
	r.request = f.request
	r.window = int(f.opts.ReadAhead) / r.request * r.request
}

// read reads len(buf) bytes, fewer only at the end of the file. It may use buf for them.
func (r *readAhead) read(ctx context.Context, off uint64, buf []byte) (fuse.ReadResult, error) {
	var result *sliceResult
	pieces := r.plan(off, len(buf)) //nolint:contextcheck // reading ahead outlives the request
	if len(pieces) > 0 {
		result = &sliceResult{chunks: pieces}
		ended, err := r.collect(ctx, result, off, len(buf))
		if ended || err != nil && result.n > 0 {
			return result.finish(), nil
		}
		if err != nil {
			result.Done()
			return nil, err
		}
		if result.n == len(buf) {
			return result, nil
		}
	}
	return r.readRest(ctx, result, off, buf)
}

// collect adds the chunks that are still valid to the result. ended is true at the end of
// the file. An error means that the request was interrupted.
func (r *readAhead) collect(ctx context.Context, result *sliceResult, off uint64, n int) (ended bool, err error) {
	for _, c := range result.chunks {
		select {
		case <-c.done:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if !c.valid(r.src) {
			r.drop()
			return false, nil
		}
		from := min(off+uint64(result.n)-c.off, uint64(c.n))
		to := min(uint64(c.n), from+uint64(n-result.n))
		result.add(c.slot.Bytes()[from:to])
		r.src.Accessed()
		if c.n < c.want && to == uint64(c.n) {
			return true, nil
		}
	}
	return false, nil
}

// readRest reads the bytes missing from the result.
func (r *readAhead) readRest(ctx context.Context, result *sliceResult, off uint64, buf []byte) (fuse.ReadResult, error) {
	got := 0
	if result != nil {
		got = result.n
	}
	buf = buf[got:]
	var slot *transport.Slot
	if len(buf) >= pinnedRead {
		if s, ok := r.slots.TryGet(devices.Size(len(buf))); ok {
			slot, buf = s, s.Bytes()[:len(buf)]
			pinSlot(r.src, s)
		}
	}
	n, err := r.src.Peek(ctx, buf, off+uint64(got))
	if n > 0 {
		r.src.Accessed()
	}
	if slot == nil && result == nil {
		if n == 0 && err != nil {
			return nil, err
		}
		return fuse.ReadResultData(buf[:n]), nil
	}
	if result == nil {
		result = &sliceResult{}
	}
	result.slot = slot
	result.add(buf[:n])
	if result.n == 0 && err != nil {
		result.Done()
		return nil, err
	}
	return result.finish(), nil
}
