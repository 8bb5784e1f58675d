package transport

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
)

// Withdraw takes a range of a file back from all devices, and keeps all pages of
// the file from being registered until release: copies with the file go through
// slots meanwhile. Pages of a file with Registrable spans may be removed only
// between Withdraw and release.
//
// A copy that uses the range is interrupted and continues through slots; Withdraw
// waits until it has left the pages. The error is the context's, when it ends
// first, or the kernel's; release must not be called then.
func (e *Engine) Withdraw(ctx context.Context, f *os.File, off uint64, n devices.Size) (release func(), err error) {
	if e.regions == nil {
		return func() {}, nil
	}
	st, err := statOf(f)
	if err != nil {
		return nil, fmt.Errorf("withdraw a file from devices: %w", err)
	}
	return e.regions.hold(ctx, FileIDOf(st), off, off+min(uint64(n), ^uint64(0)-off))
}

// Share takes a file back from all devices permanently. Call it before the file
// is shared with another process, which may take pages from it without notice,
// for as long as it keeps the descriptor. Errors are those of Withdraw.
func (e *Engine) Share(ctx context.Context, f *os.File) error {
	release, err := e.Withdraw(ctx, f, 0, ^devices.Size(0))
	if err != nil || e.regions == nil {
		return err
	}
	defer release()
	st, err := statOf(f)
	if err != nil {
		return fmt.Errorf("share a file: %w", err)
	}
	e.regions.mu.Lock()
	defer e.regions.mu.Unlock()
	e.regions.fileLocked(FileIDOf(st)).shared = true
	return nil
}

// Forget drops every registered page of a file that is about to be removed. A
// copy that still uses some keeps them until it ends.
func (e *Engine) Forget(id FileID) {
	if e.regions != nil {
		e.regions.forgetFile(id)
	}
}

func (r *regions) hold(ctx context.Context, id FileID, off, end uint64) (release func(), err error) {
	r.mu.Lock()
	f := r.fileLocked(id)
	f.held++
	unused := r.dropOfLocked(f, func(g *region) bool { return g.overlaps(off, end) })
	var others []*region
	for g := range f.leaving {
		if g.overlaps(off, end) {
			g.revoke()
			others = append(others, g)
		}
	}
	r.mu.Unlock()
	r.end(unused...)
	for _, g := range others {
		select {
		case <-g.gone:
		case <-ctx.Done():
			r.release(f)
			return nil, fmt.Errorf("wait for devices that use a file: %w", ctx.Err())
		}
	}
	return func() { r.release(f) }, nil
}

// release undoes one call of hold.
func (r *regions) release(f *pinnedFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.held--
	r.sweepLocked(f)
}

func (r *regions) forgetFile(id FileID) {
	r.mu.Lock()
	f := r.files[id]
	if f == nil {
		r.mu.Unlock()
		return
	}
	unused := r.dropOfLocked(f, func(*region) bool { return true })
	clear(f.refused)
	f.shared = false
	r.sweepLocked(f)
	r.mu.Unlock()
	r.end(unused...)
}

// statOf returns the stat of an open file.
func statOf(f *os.File) (st unix.Stat_t, err error) {
	err = descriptor.Use(f, func(fd int) error { return unix.Fstat(fd, &st) })
	return st, err
}
