package fs

import (
	"context"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// plan moves the window for a request of n bytes at off. It returns the chunks that contain
// the beginning of the request, in order and without a gap, each with a reference for the
// caller.
func (r *readAhead) plan(off uint64, n int) []*chunk {
	if r.window == 0 || r.src.Foreign() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	sequential := off == r.next
	if sequential {
		r.run++
	} else {
		r.run = 0
	}
	end := off + uint64(n)
	r.next = end
	pieces := r.takeLocked(off, end)
	if len(r.chunks) > 0 && !sequential && len(pieces) == 0 {
		r.dropLocked() // the reader has moved elsewhere
	}
	if sequential && !r.closed && (n >= bulkRead || r.run >= smallRun) {
		r.extendLocked(end)
	}
	return pieces
}

// takeLocked returns the chunks that hold the beginning of [off, end), with a reference
// each, and drops those before it.
//
// +checklocks:r.mu
func (r *readAhead) takeLocked(off, end uint64) []*chunk {
	if len(r.chunks) == 0 || off < r.chunks[0].off {
		return nil
	}
	passed := 0
	for passed < len(r.chunks) && r.chunks[passed].end() <= off {
		r.chunks[passed].unref()
		passed++
	}
	r.chunks = append(r.chunks[:0], r.chunks[passed:]...)
	count := 0
	for count < len(r.chunks) && r.chunks[count].off < end {
		r.chunks[count].ref()
		count++
	}
	return append([]*chunk(nil), r.chunks[:count]...)
}

// extendLocked starts to read chunks until the window reaches far enough beyond end, or the
// file or the pinned memory ends.
//
// +checklocks:r.mu
func (r *readAhead) extendLocked(end uint64) {
	at := end
	if len(r.chunks) > 0 {
		at = r.chunks[len(r.chunks)-1].end()
	}
	size := r.src.Size()
	for at < size && at < end+uint64(r.window) {
		// The chunk is a whole request even if the file ends within it: a short read is
		// then known to be the end.
		if !r.startLocked(at) {
			break
		}
		at += uint64(r.request)
	}
	if len(r.chunks) == 0 {
		return
	}
	if r.idle == nil {
		r.idle = time.AfterFunc(idleWindow, r.drop)
		return
	}
	r.idle.Reset(idleWindow)
}

// startLocked starts to read one chunk. It returns false if no pinned memory is available
// at once: waiting for it could mean waiting for this reader itself.
//
// +checklocks:r.mu
func (r *readAhead) startLocked(off uint64) bool {
	if !r.budget.take(r.request) {
		return false
	}
	slot, ok := r.slots.TryGet(devices.Size(r.request))
	if !ok {
		r.budget.give(r.request)
		return false
	}
	if r.ctx == nil {
		r.ctx, r.cancel = context.WithCancel(background())
	}
	c := &chunk{
		off: off, want: r.request, slot: slot, budget: r.budget,
		version: r.src.Version(), done: make(chan struct{}),
	}
	c.refs.Store(2)
	r.chunks = append(r.chunks, c)
	ctx := r.ctx
	r.fetches.Go(func() { c.fetch(ctx, r.src) })
	return true
}

func (r *readAhead) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropLocked()
}

// +checklocks:r.mu
func (r *readAhead) dropLocked() {
	if r.cancel != nil {
		r.cancel()
		r.ctx, r.cancel = nil, nil
	}
	for _, c := range r.chunks {
		c.unref()
	}
	r.chunks = nil
}

// settle waits until the window has been read, or the context ends.
func (r *readAhead) settle(ctx context.Context) {
	r.mu.Lock()
	chunks := slices.Clone(r.chunks)
	r.mu.Unlock()
	for _, c := range chunks {
		select {
		case <-c.done:
		case <-ctx.Done():
			return
		}
	}
}

// close drops the window for good and waits for all fetches.
func (r *readAhead) close() {
	r.mu.Lock()
	r.closed = true
	r.dropLocked()
	if r.idle != nil {
		r.idle.Stop()
	}
	r.mu.Unlock()
	r.fetches.Wait()
}
