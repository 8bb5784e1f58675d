package content

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
)

// bound is content in memory that another process owns, or a holder. Its
// length never changes, and nothing is freed or cleared when it ends: only our
// hold of the memory goes. Its parts are added before it has readers.
type Bound struct {
	engine *transport.Engine
	name   devices.Name
	size   uint64
	parts  []boundPart // in order, without gaps
	// files, mems and of are what parts are in, once each.
	files []*os.File
	mems  []*devices.Memory
	of    []*Bound
	gate  gate
	logf  func(msg string, err error)
	// source is for the maker of the content, which notes here whose memory it is.
	// Set before the content has readers.
	Source any

	mu sync.Mutex
	// +checklocks:mu
	ended bool
	// cancel ends the watch over the owner; nil when there is none.
	// +checklocks:mu
	cancel func()
	// spares are replicas, each as long as this, that are read when this can't
	// be. They change under the object's lane.
	// +checklocks:mu
	spares []*Bound
	// leaving says that its holder takes it away, and its object with it.
	// +checklocks:mu
	leaving bool
}

// boundPart is a stretch of the object in one file, one memory, or memory that
// a holder has registered.
type boundPart struct {
	off, n uint64
	file   *os.File
	mem    *devices.Memory
	of     *Bound
	at     uint64 // in the file, or in of
}

// newBound makes content of device name, of no length yet. Errors of closing its memory
// go to logf.
func NewBound(e *transport.Engine, name devices.Name, logf func(msg string, err error)) *Bound {
	return &Bound{engine: e, name: name, logf: logf}
}

// addFile adds n bytes at at of a file, which the content takes over. Parts of one file
// share it.
func (b *Bound) AddFile(f *os.File, at, n uint64) {
	if !slices.Contains(b.files, f) {
		b.files = append(b.files, f)
	}
	b.add(boundPart{n: n, file: f, at: at})
}

// addMemory adds the first n bytes of device memory, which the content takes over.
func (b *Bound) AddMemory(m *devices.Memory, n uint64) {
	b.mems = append(b.mems, m)
	b.add(boundPart{n: n, mem: m})
}

// addPart adds n bytes at at of other content, which lives on if this ends.
func (b *Bound) AddPart(of *Bound, at, n uint64) {
	if k := len(b.parts); k > 0 && b.parts[k-1].of == of && b.parts[k-1].at+b.parts[k-1].n == at {
		b.parts[k-1].n += n
		b.size += n
		return
	}
	if !slices.Contains(b.of, of) {
		b.of = append(b.of, of)
	}
	b.add(boundPart{n: n, of: of, at: at})
}

func (b *Bound) add(p boundPart) {
	p.off = b.size
	b.parts = append(b.parts, p)
	b.size += p.n
}

// length returns the length in bytes.
func (b *Bound) Length() uint64 { return b.size }

// afterReaders runs fn when every reader that is inside now has left.
func (b *Bound) AfterReaders(fn func()) { b.gate.after(fn) }

// state says whether the owner is still there, or a replica.
func (b *Bound) State() metadata.BindState {
	if b.Alive() || b.successor() != nil {
		return metadata.BoundLive
	}
	return metadata.BoundLost
}

// alive says whether its own memory is there, without replicas.
func (b *Bound) Alive() bool {
	if b.HasEnded() {
		return false
	}
	for _, of := range b.of {
		if of.HasEnded() {
			return false
		}
	}
	return true
}

func (b *Bound) HasEnded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// watched keeps what ends the watch over the owner.
func (b *Bound) SetCancel(cancel func()) {
	b.mu.Lock()
	b.cancel = cancel
	ended := b.ended
	b.mu.Unlock()
	if ended {
		cancel()
	}
}

// end lets the memory go: at once for who comes now, and the hold of it when
// the last reader has left.
func (b *Bound) End() {
	b.mu.Lock()
	was, cancel, spares := b.ended, b.cancel, b.spares
	b.ended, b.spares = true, nil
	b.mu.Unlock()
	if was {
		return
	}
	if cancel != nil {
		cancel()
	}
	for _, r := range spares {
		r.End()
	}
	b.gate.after(func() {
		var errs []error
		for _, f := range b.files {
			errs = append(errs, f.Close())
		}
		for _, m := range b.mems {
			errs = append(errs, m.Release())
		}
		if err := errors.Join(errs...); err != nil {
			b.logf("memory of another process could not be let go", err)
		}
	})
}

// find prefers the owner's memory to a replica's.
func (b *Bound) Find(off, n uint64, _ bool) ([]Piece, func(), error) {
	pieces, release, err := b.FindOwn(off, n)
	if err == nil {
		return pieces, release, nil
	}
	for _, r := range b.Replicas() {
		if found, leave, other := r.FindOwn(off, n); other == nil {
			return found, leave, nil
		}
	}
	return nil, nil, err
}

// own is find without replicas.
func (b *Bound) FindOwn(off, n uint64) ([]Piece, func(), error) {
	var in stay
	err := in.enter(b)
	end := min(off+n, b.size)
	for i := b.first(off); err == nil && i < len(b.parts) && b.parts[i].off < end; i++ {
		if of := b.parts[i].of; of != nil {
			err = in.enter(of)
		}
	}
	if err != nil {
		in.leave()
		return nil, nil, err
	}
	return b.pieces(nil, off, end, off), in.leave, nil
}

// first is the part that a byte is in.
func (b *Bound) first(off uint64) int {
	return sort.Search(len(b.parts), func(i int) bool { return b.parts[i].off+b.parts[i].n > off })
}

// pieces appends what [off, end) is made of, where off is told as to. The
// caller has entered all that it is in.
func (b *Bound) pieces(have []Piece, off, end, to uint64) []Piece {
	for i := b.first(off); i < len(b.parts) && b.parts[i].off < end; i++ {
		p := &b.parts[i]
		from, upto := max(off, p.off), min(end, p.off+p.n)
		if p.of != nil {
			have = p.of.pieces(have, p.at+from-p.off, p.at+upto-p.off, to+from-off)
			continue
		}
		at := Piece{Off: to + from - off, N: upto - from}
		if p.file != nil {
			at.Span = transport.FileSpan(b.name, p.file, int64(p.at+from-p.off), devices.Size(at.N))
		} else {
			at.Dev = devices.Span{Mem: p.mem, Range: rangeOf(from-p.off, upto-p.off)}
			at.Span = transport.DeviceSpan(at.Dev)
		}
		have = append(have, at)
	}
	return have
}

// stay is a reader's in the gates of all that it reads.
type stay []stayed

type stayed struct {
	of *Bound
	in *generation
}

// enter goes in, once.
func (s *stay) enter(b *Bound) error {
	if slices.ContainsFunc(*s, func(e stayed) bool { return e.of == b }) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return fmt.Errorf("its owner has ended: %w", ErrLost)
	}
	*s = append(*s, stayed{b, b.gate.enter()})
	return nil
}

func (s *stay) leave() {
	for _, e := range *s {
		e.of.gate.leave(e.in)
	}
}

// change runs fn on the pieces of a range that holds what the object has of
// [off, off+n), and fails like a full device when that is not all of it.
func (b *Bound) change(ctx context.Context, off, n uint64, fn func(ctx context.Context, at Piece) error) (uint64, error) {
	fits := min(off+n, max(off, b.size)) - off
	var done uint64
	for done < fits {
		// What was begun is finished, see extents.write.
		if err := ctx.Err(); err != nil && done > 0 {
			return done, err
		}
		step := min(fits-done, MaxPiece)
		pieces, release, err := b.FindOwn(off+done, step)
		if err != nil {
			return done, err
		}
		b.DropReplicas(nil) // they are none of what is here from now on
		for _, at := range pieces {
			if err = b.whole(at); err == nil {
				err = fn(context.WithoutCancel(ctx), at)
			}
			if err != nil {
				release()
				return done, err
			}
			done += at.N
		}
		release()
	}
	if fits < n {
		return done, fmt.Errorf("%d bytes at %d of memory of another process, which has %d: %w", n, off, b.size, devices.ErrOutOfMemory)
	}
	return done, nil
}

// whole fails when the owner has cut the file that a piece is in. A write
// would make it longer again, which is not ours to do.
func (b *Bound) whole(at Piece) error {
	p := &b.parts[b.first(at.Off)]
	if p.of != nil {
		at.Off += p.at - p.off
		return p.of.whole(at)
	}
	if p.file == nil {
		return nil
	}
	_, size, err := owner.Facts(p.file)
	if err != nil {
		return err
	}
	if need := p.at + at.Off - p.off + at.N; size < need {
		return fmt.Errorf("its owner has cut the memory to %d bytes, %d are needed: %w", size, need, devices.ErrRange)
	}
	return nil
}

func (b *Bound) Write(ctx context.Context, off uint64, src transport.Span) (uint64, transport.Path, error) {
	var path transport.Path
	done, err := b.change(ctx, off, uint64(src.Len()), func(ctx context.Context, at Piece) error {
		from, err := src.Part(devices.Offset(at.Off-off), devices.Size(at.N))
		if err != nil {
			return err
		}
		path, err = b.engine.Copy(ctx, at.Span, from)
		return err
	})
	return done, path, err
}

func (b *Bound) Clear(ctx context.Context, off, n uint64, keep bool) error {
	if !keep {
		return b.fixed("give a part of it back")
	}
	_, err := b.change(ctx, off, n, func(ctx context.Context, at Piece) error {
		return b.engine.Fill(ctx, at.Span, 0)
	})
	return err
}

func (b *Bound) Cut(_ context.Context, size uint64) error {
	if size == b.size {
		return nil
	}
	return b.fixed(fmt.Sprintf("resize it to %d bytes", size))
}

func (b *Bound) Reserve(_ context.Context, off, n uint64) error {
	if off+n <= b.size {
		return nil
	}
	return fmt.Errorf("%d bytes at %d of memory of another process, which has %d: %w", n, off, b.size, devices.ErrOutOfMemory)
}

func (b *Bound) fixed(what string) error {
	return fmt.Errorf("%s: it is memory of another process; remove the file instead: %w", what, ErrBusy)
}

func (b *Bound) Usage() uint64                    { return b.size }
func (b *Bound) Settle(uint64) []metadata.Mapping { return nil }
func (b *Bound) Backing() *os.File                { return nil }
func (b *Bound) Discard() error                   { b.End(); return nil }
