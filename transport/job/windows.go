package job

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// MaxWindow is the maximum size, in bytes, of a window.
const MaxWindow devices.Size = 1 << 40

// Windows is a set of windows: memory of each rank of a domain.
type Windows struct {
	d      *Domain
	size   devices.Size
	own    *region.Buffer
	shared fabric.Shared
	// remote describes the other ranks' windows for puts and gets; it is not used for
	// windows that are mapped.
	remote []wire.Descriptor

	mu sync.RWMutex
	// +checklocks:mu
	gone bool
}

// AllocWindows allocates n bytes of zeroed memory at each rank, with the same n at all of
// them. A domain has one set of windows at a time.
//
// Errors: ErrWindows, at all ranks if the sizes differ; those of Barrier.
func (d *Domain) AllocWindows(ctx context.Context, n devices.Size) (*Windows, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.destroyed:
		return nil, ErrClosed
	case d.windows != nil:
		return nil, fmt.Errorf("domain %q already has windows: %w", d.name, ErrWindows)
	}
	ctx, cancel := d.job.within(ctx)
	defer cancel()
	w := &Windows{d: d, size: n, remote: make([]wire.Descriptor, len(d.ranks))}
	err := w.allocate()
	if err = d.meetLocked(ctx, w, err); err != nil {
		return nil, errors.Join(fmt.Errorf("windows of %d bytes for domain %q: %w", uint64(n), d.name, err), w.drop()) //nolint:contextcheck // cleanup must not depend on the context
	}
	d.windows = w
	return w, nil
}

// allocate allocates our own window.
func (w *Windows) allocate() (err error) {
	if w.size == 0 || w.size > MaxWindow {
		return fmt.Errorf("a window must have 1 to %d bytes: %w", uint64(MaxWindow), ErrWindows)
	}
	w.own, err = w.d.job.Table().Alloc(w.size)
	return err
}

// meetLocked announces our window to the other ranks, or that there is none, and opens
// theirs.
//
// +checklocks:d.mu
func (d *Domain) meetLocked(ctx context.Context, w *Windows, failed error) error {
	j := d.job
	offers := make([][]byte, len(d.ranks))
	for r := range d.ranks {
		offers[r] = binary.LittleEndian.AppendUint64([]byte{0}, uint64(w.size))
		if failed != nil || r == d.Rank() {
			continue
		}
		desc, err := j.comm.Share(ctx, wire.Rank(d.ranks[r]), w.own, wire.Readable|wire.Writable)
		if err != nil {
			failed = fmt.Errorf("share with rank %d: %w", r, err)
			continue
		}
		offers[r] = desc.Append(offers[r])
	}
	if failed == nil {
		for r := range offers {
			offers[r][0] = 1
		}
	}
	got, err := d.exchangeLocked(ctx, kindWindows, func(to int) []byte { return offers[to] })
	if err != nil {
		return errors.Join(failed, err)
	}
	if err = w.evaluate(got, failed); err != nil {
		return err
	}
	if d.fabric.Mapped() {
		w.shared, err = d.fabric.Share(ctx, w.own)
	}
	return err
}

// evaluate reads the announcements of the other ranks. All ranks reach the same verdict.
func (w *Windows) evaluate(got [][]byte, failed error) error {
	for r, p := range got {
		const head = 1 + 8
		if len(p) < head {
			return fmt.Errorf("rank %d: %w", r, fabric.ErrProtocol)
		}
		n := binary.LittleEndian.Uint64(p[1:])
		if n != uint64(w.size) {
			return errors.Join(failed, fmt.Errorf("rank %d requests windows of %d bytes: %w", r, n, ErrWindows))
		}
		if p[0] != 1 {
			return errors.Join(failed, fmt.Errorf("rank %d could not allocate its window: %w", r, ErrWindows))
		}
		if r == w.d.Rank() {
			continue
		}
		desc, err := wire.ParseDescriptor(p[head:])
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		w.remote[r] = desc
	}
	return failed
}

// Size returns the size of each window in bytes.
func (w *Windows) Size() devices.Size { return w.size }

// Buffer returns our own window as registered memory.
func (w *Windows) Buffer() *region.Buffer { return w.own }

// Local returns our own window.
func (w *Windows) Local() []byte { return w.Of(w.d.Rank()) }

// Of returns the window of a rank if it is mapped; otherwise, and after Release, it returns
// nil.
func (w *Windows) Of(rank int) []byte {
	w.mu.RLock()
	defer w.mu.RUnlock()
	switch {
	case w.gone || rank < 0 || rank >= len(w.d.ranks):
		return nil
	case rank == w.d.Rank():
		return w.own.Host(0, w.size)
	case w.shared == nil:
		return nil
	}
	return w.shared.Bytes(plan.Rank(rank))
}

// Put copies p into the window of a rank, mapped or not. It returns when the bytes are in
// place.
//
// Errors: devices.ErrRange; ErrWindows after Release; those of comm.
func (w *Windows) Put(ctx context.Context, rank int, off uint64, p []byte) error {
	return w.move(ctx, rank, off, p, true)
}

// Get copies from the window of a rank, mapped or not.
func (w *Windows) Get(ctx context.Context, rank int, off uint64, p []byte) error {
	return w.move(ctx, rank, off, p, false)
}

func (w *Windows) move(ctx context.Context, rank int, off uint64, p []byte, put bool) (err error) {
	at := devices.Range{Off: devices.Offset(off), Len: devices.Size(len(p))}
	if rank < 0 || rank >= len(w.d.ranks) || !at.Within(w.size) {
		return fmt.Errorf("%v is outside the window of rank %d: %w", at, rank, devices.ErrRange)
	}
	w.mu.RLock()
	gone := w.gone
	w.mu.RUnlock()
	if gone {
		return fmt.Errorf("the windows have been released: %w", ErrWindows)
	}
	if len(p) == 0 {
		return nil
	}
	if there := w.Of(rank); there != nil {
		if put {
			copy(there[off:], p)
		} else {
			copy(p, there[off:])
		}
		return nil
	}
	local, err := w.d.job.Table().Register(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close(context.WithoutCancel(ctx))) }()
	op := comm.Op{Local: local, Remote: w.remote[rank], RemoteOff: off, Size: at.Len}
	if put {
		return w.d.job.comm.Put(ctx, wire.Rank(w.d.ranks[rank]), op)
	}
	return w.d.job.comm.Get(ctx, wire.Rank(w.d.ranks[rank]), op)
}

// Release frees the windows. All ranks call it, so that no rank uses a window that another
// one has released.
func (w *Windows) Release(ctx context.Context) error {
	d := w.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.windows != w {
		return nil
	}
	if _, err := d.exchangeLocked(ctx, kindRelease, func(int) []byte { return nil }); err != nil {
		return err
	}
	d.windows = nil
	return w.drop() //nolint:contextcheck // cleanup must not depend on the context
}

// drop frees our side.
func (w *Windows) drop() error {
	w.mu.Lock()
	already := w.gone
	w.gone = true
	w.mu.Unlock()
	if already {
		return nil
	}
	var errs []error
	if w.shared != nil {
		errs = append(errs, w.shared.Close())
	}
	if w.own != nil {
		errs = append(errs, w.own.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// Offsets in a CommContext of simpler.
const (
	// ContextSize is the size, in bytes, of Windows.Context.
	ContextSize = 1056

	contextRank = 16
	contextSize = 24
	contextIn   = 32
	contextOut  = 544
)

// Context encodes the windows as the CommContext of simpler: no work space, our rank and
// the number of ranks, the size of a window, and the address of each in this process, in
// windowsIn and again in windowsOut. The address is 0 for windows of other hosts, which
// can't be mapped.
func (w *Windows) Context() (c [ContextSize]byte) {
	binary.LittleEndian.PutUint32(c[contextRank:], uint32(w.d.Rank()))
	binary.LittleEndian.PutUint32(c[contextRank+4:], uint32(w.d.Size()))
	binary.LittleEndian.PutUint64(c[contextSize:], uint64(w.size))
	for r := range w.d.ranks {
		at := uint64(reflect.ValueOf(w.Of(r)).Pointer())
		binary.LittleEndian.PutUint64(c[contextIn+8*r:], at)
		binary.LittleEndian.PutUint64(c[contextOut+8*r:], at)
	}
	return c
}
