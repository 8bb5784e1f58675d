package content

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
)

// Bound is content in memory that another process owns, or that a session has registered.
// Its length never changes, and ending it frees and clears nothing: only the reference to
// the memory goes. Parts are added before it has readers; after that, its methods may be
// called from any goroutine.
type Bound struct {
	engine *transport.Engine
	name   devices.Name
	size   uint64
	parts  []boundPart // in order, without gaps
	// files, maps, mems and of hold the parts, once each.
	files []*os.File
	maps  []*transport.Mapping
	mems  []*devices.Memory
	of    []*Bound
	// part and other are the memory of parts and of while they have one element.
	part  [1]boundPart
	other [1]*Bound
	gate  gate
	logf  func(msg string, err error)
	// Source is for the creator of the content, which stores here whose memory it is.
	// It is set before the content has readers.
	Source any

	// absent is closed when the memory of content that InitAbsent made is there, or the content has
	// ended; nil for other content. parts and of are not read before.
	absent chan struct{}

	// ended is set before the memory is released behind the gate.
	ended atomic.Bool
	// replicated is set before the content gets its first replica.
	replicated atomic.Bool

	mu sync.Mutex
	// cancel ends the watch over the owner; nil for none.
	// +checklocks:mu
	cancel Canceler
	// spares are replicas of the same length, read when this memory can't be. They
	// change under the object's lane.
	// +checklocks:mu
	spares []*Bound
	// leaving reports that the content is about to go, and its object with it.
	// +checklocks:mu
	leaving bool
	// came reports that absent is closed.
	// +checklocks:mu
	came bool
}

// boundPart is a range of the content in one file, one device memory, or one other Bound.
type boundPart struct {
	off, n uint64
	file   *os.File
	mapped *transport.Mapping // of the file; nil for none
	mem    *devices.Memory
	of     *Bound
	at     uint64 // in the file, or in of
}

// Canceler ends the watch over the owner of memory.
type Canceler interface{ Cancel() }

// CancelFunc is a function as a Canceler.
type CancelFunc func()

// Cancel calls the function.
func (f CancelFunc) Cancel() { f() }

// NewBound returns content of the device with that name, without parts. Errors of closing
// its memory go to logf.
func NewBound(e *transport.Engine, name devices.Name, logf func(msg string, err error)) *Bound {
	b := &Bound{}
	b.Init(e, name, logf)
	return b
}

// Init is NewBound in memory of the caller, which stays where it is.
func (b *Bound) Init(e *transport.Engine, name devices.Name, logf func(msg string, err error)) {
	b.engine, b.name, b.logf = e, name, logf
	b.parts, b.of = b.part[:0], b.other[:0]
}

// InitAbsent is Init for content of a size whose memory its owner is expected to show again: who
// reads it waits for Return, or End, by Await. Before that it finds ErrBusy.
func (b *Bound) InitAbsent(e *transport.Engine, name devices.Name, size uint64, logf func(msg string, err error)) {
	b.Init(e, name, logf)
	b.size, b.absent = size, make(chan struct{})
}

// Return gives absent content its memory: parts of another content, which does not end with this one.
// It reports whether the content has waited for it.
//
// Errors: ErrLost for parts of another size.
func (b *Bound) Return(from *Bound) (waited bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.came || b.ended.Load() {
		return false, nil
	}
	if from.size != b.size {
		return false, fmt.Errorf("%d bytes of memory came back, but the object has %d: %w", from.size, b.size, ErrLost)
	}
	b.parts, b.of = from.parts, from.of
	b.came = true
	close(b.absent)
	return true, nil
}

// isThere reports whether the memory is known.
func (b *Bound) isThere() bool {
	if b.absent == nil {
		return true
	}
	select {
	case <-b.absent:
		return true
	default:
		return false
	}
}

// Await waits for the memory of absent content, and returns at once for any other.
func (b *Bound) Await(ctx context.Context) error {
	if b.absent == nil {
		return nil
	}
	select {
	case <-b.absent:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AddFile appends n bytes at offset at of a file. The content takes over the file; several
// parts may be in one.
func (b *Bound) AddFile(f *os.File, at, n uint64) {
	if !slices.Contains(b.files, f) {
		b.files = append(b.files, f)
	}
	b.add(boundPart{n: n, file: f, at: at})
}

// MapFiles maps the files that can't shrink. Those that can are read and written through
// their descriptors, and so are those for which maps has no room.
func (b *Bound) MapFiles(maps *transport.Mappings) {
	for _, f := range b.files {
		var end uint64
		for i := range b.parts {
			if p := &b.parts[i]; p.file == f {
				end = max(end, p.at+p.n)
			}
		}
		m, err := maps.Map(f, devices.Size(end))
		if err != nil {
			continue // its descriptor remains
		}
		b.maps = append(b.maps, m)
		for i := range b.parts {
			if p := &b.parts[i]; p.file == f {
				p.mapped = m
			}
		}
	}
}

// AddMemory appends the first n bytes of device memory, which the content takes over.
func (b *Bound) AddMemory(m *devices.Memory, n uint64) {
	b.mems = append(b.mems, m)
	b.add(boundPart{n: n, mem: m})
}

// AddPart appends n bytes at offset at of other content, which does not end with this one.
// It reports whether they are the first of that content.
func (b *Bound) AddPart(of *Bound, at, n uint64) (first bool) {
	if k := len(b.parts); k > 0 && b.parts[k-1].of == of && b.parts[k-1].at+b.parts[k-1].n == at {
		b.parts[k-1].n += n
		b.size += n
		return false
	}
	if first = !slices.Contains(b.of, of); first {
		b.of = append(b.of, of)
	}
	b.add(boundPart{n: n, of: of, at: at})
	return first
}

func (b *Bound) add(p boundPart) {
	p.off = b.size
	b.parts = append(b.parts, p)
	b.size += p.n
}

// Length returns the length in bytes.
func (b *Bound) Length() uint64 { return b.size }

// AfterReaders runs fn when every reader that is inside now has left.
func (b *Bound) AfterReaders(fn func()) { b.gate.after(fn) }

// State reports whether the owner's memory, or a replica, can be read.
func (b *Bound) State() metadata.BindState {
	if b.Alive() || slices.ContainsFunc(b.Replicas(), (*Bound).Alive) {
		return metadata.BoundLive
	}
	return metadata.BoundLost
}

// Alive reports whether its own memory can be read, replicas aside.
func (b *Bound) Alive() bool {
	return !b.HasEnded() && (!b.isThere() || !slices.ContainsFunc(b.of, (*Bound).HasEnded))
}

// HasEnded reports whether End was called, of its own memory alone.
func (b *Bound) HasEnded() bool { return b.ended.Load() }

// SetCancel stores what ends the watch over the owner. If the content has ended
// it is called at once.
func (b *Bound) SetCancel(cancel Canceler) {
	b.mu.Lock()
	b.cancel = cancel
	ended := b.ended.Load()
	b.mu.Unlock()
	if ended {
		cancel.Cancel()
	}
}

// End makes the memory unreadable for new readers at once, and releases it when the last
// reader has left. Ending twice does nothing.
func (b *Bound) End() {
	b.mu.Lock()
	was, cancel, spares := b.ended.Swap(true), b.cancel, b.spares
	b.spares = nil
	if b.absent != nil && !b.came {
		b.came = true
		close(b.absent)
	}
	b.mu.Unlock()
	if was {
		return
	}
	if cancel != nil {
		cancel.Cancel()
	}
	for _, r := range spares {
		r.End()
	}
	b.gate.after(func() {
		var errs []error
		for _, m := range b.maps {
			errs = append(errs, m.Release())
		}
		for _, f := range b.files {
			errs = append(errs, f.Close())
		}
		for _, m := range b.mems {
			errs = append(errs, m.Release())
		}
		if err := errors.Join(errs...); err != nil {
			b.logf("could not release memory of another process", err)
		}
	})
}

// Find implements Content. It prefers the owner's memory to a replica's.
func (b *Bound) Find(off, n uint64, _ bool) (Range, error) {
	seen, err := b.FindOwn(off, n)
	if err == nil {
		return seen, nil
	}
	for _, r := range b.Replicas() {
		if found, other := r.FindOwn(off, n); other == nil {
			return found, nil
		}
	}
	return Range{}, err
}

// FindOwn is Find without replicas.
//
// Errors: ErrLost; ErrBusy for memory that is absent, see Await.
func (b *Bound) FindOwn(off, n uint64) (Range, error) {
	if !b.isThere() {
		return Range{}, fmt.Errorf("the process that owns the memory has not shown it again yet: %w", ErrBusy)
	}
	var seen Range
	err := b.enter(&seen.in)
	end := max(off, min(off+n, b.size))
	from := b.first(off)
	for i := from; err == nil && i < len(b.parts) && b.parts[i].off < end; i++ {
		if of := b.parts[i].of; of != nil {
			err = of.enter(&seen.in)
		}
	}
	if err != nil {
		seen.Release()
		return Range{}, err
	}
	seen.N = end - off
	b.pieces(&seen, from, off, end, off)
	return seen, nil
}

// enter enters the gate of the memory, once for each reader.
//
// Errors: ErrLost.
func (b *Bound) enter(in *stay) error {
	if in.inside(&b.gate) {
		return nil
	}
	// End sets ended before it looks for readers: one that does not see it there is waited for.
	in.enter(&b.gate)
	if b.ended.Load() {
		return fmt.Errorf("the process that owns the memory has ended: %w", ErrLost)
	}
	return nil
}

// first returns the index of the part that holds a byte.
func (b *Bound) first(off uint64) int {
	if len(b.parts) == 1 && off < b.size {
		return 0
	}
	return sort.Search(len(b.parts), func(i int) bool { return b.parts[i].off+b.parts[i].n > off })
}

// pieces adds the pieces of [off, end) to a range, the first of which gets offset to. from is the
// index of the part that holds off. The caller has entered the gates of all their memory.
func (b *Bound) pieces(seen *Range, from int, off, end, to uint64) {
	for i := from; i < len(b.parts) && b.parts[i].off < end; i++ {
		p := &b.parts[i]
		begin, upto := max(off, p.off), min(end, p.off+p.n)
		if p.of != nil {
			inside := p.at + begin - p.off
			p.of.pieces(seen, p.of.first(inside), inside, p.at+upto-p.off, to+begin-off)
			continue
		}
		at := Piece{Off: to + begin - off, N: upto - begin}
		switch {
		case p.mapped != nil:
			at.Span = transport.MappedSpan(b.name, p.mapped, int64(p.at+begin-p.off), devices.Size(at.N))
		case p.file != nil:
			at.Span = transport.FileSpan(b.name, p.file, int64(p.at+begin-p.off), devices.Size(at.N))
		default:
			at.Dev = devices.Span{Mem: p.mem, Range: rangeOf(begin-p.off, upto-p.off)}
			at.Span = transport.DeviceSpan(at.Dev)
		}
		seen.add(at)
	}
}

// change copies src to the part of [off, off+n) that the content has, or fills it with zeros if src is nil, and
// fails as a full device does when that is not all of it.
func (b *Bound) change(ctx context.Context, off, n uint64, src *transport.Span) (done uint64, path transport.Path, err error) {
	if err = b.Await(ctx); err != nil {
		return 0, path, err
	}
	fits := min(off+n, max(off, b.size)) - off
	for done < fits {
		if err = ctx.Err(); err != nil && done > 0 {
			return done, path, err
		}
		seen, err := b.FindOwn(off+done, min(fits-done, MaxPiece))
		if err != nil {
			return done, path, err
		}
		b.DropReplicas(nil) // they are none of what is here from now on
		for i := range seen.Len() {
			at := seen.At(i)
			path, err = b.changePiece(at, at.Off-off, src) //nolint:contextcheck // it is finished
			if err != nil {
				seen.Release()
				return done, path, err
			}
			done += at.N
		}
		seen.Release()
	}
	if fits < n {
		return done, path, fmt.Errorf("%d bytes at offset %d exceed the memory of another process, which has %d: %w", n, off, b.size, devices.ErrOutOfMemory)
	}
	return done, path, nil
}

// changePiece is change for a piece. skip is the offset in src. A piece that has begun is finished, see
// Extents.Write. Nothing that moves bytes reads the values of a context, and context.WithoutCancel would
// allocate.
func (b *Bound) changePiece(at *Piece, skip uint64, src *transport.Span) (transport.Path, error) {
	if err := b.whole(at.Off, at.N); err != nil {
		return "", err
	}
	if src == nil {
		return "", b.engine.Fill(context.Background(), at.Span, 0)
	}
	from, err := src.Part(devices.Offset(skip), devices.Size(at.N))
	if err != nil {
		return "", err
	}
	return b.engine.Copy(context.Background(), at.Span, from)
}

// whole fails when the owner has truncated the file that a piece is in. A write would
// extend it again, which is the owner's business.
func (b *Bound) whole(off, n uint64) error {
	p := &b.parts[b.first(off)]
	if p.of != nil {
		return p.of.whole(off+p.at-p.off, n)
	}
	if p.file == nil || p.mapped != nil {
		return nil
	}
	_, size, err := owner.Facts(p.file)
	if err != nil {
		return err
	}
	if need := p.at + off - p.off + n; size < need {
		return fmt.Errorf("its owner has truncated the memory to %d bytes, but %d are needed: %w", size, need, devices.ErrRange)
	}
	return nil
}

// Write implements Content.
func (b *Bound) Write(ctx context.Context, off uint64, src transport.Span) (uint64, transport.Path, error) {
	return b.change(ctx, off, uint64(src.Len()), &src)
}

// Clear implements Content. Without keep it fails with ErrBusy.
func (b *Bound) Clear(ctx context.Context, off, n uint64, keep bool) error {
	if !keep {
		return b.fixed("free a part of it")
	}
	_, _, err := b.change(ctx, off, n, nil)
	return err
}

// Cut implements Content. It fails with ErrBusy for any other size than the present one.
func (b *Bound) Cut(_ context.Context, size uint64) error {
	if size == b.size {
		return nil
	}
	return b.fixed(fmt.Sprintf("resize it to %d bytes", size))
}

// Reserve implements Content. It fails as a full device does behind the end.
func (b *Bound) Reserve(_ context.Context, off, n uint64) error {
	if off+n <= b.size {
		return nil
	}
	return fmt.Errorf("%d bytes at offset %d exceed the memory of another process, which has %d: %w", n, off, b.size, devices.ErrOutOfMemory)
}

func (b *Bound) fixed(what string) error {
	return fmt.Errorf("can't %s: it is memory of another process; remove the file instead: %w", what, ErrBusy)
}

// Usage implements Content.
func (b *Bound) Usage() uint64 { return b.size }

// Settle implements Content.
func (b *Bound) Settle(uint64) []metadata.Mapping { return nil }

// Backing implements Content.
func (b *Bound) Backing() *os.File { return nil }

// Discard implements Content.
func (b *Bound) Discard() error { b.End(); return nil }
