package objects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/transport"
)

// bound is content in memory that another process owns. Its length never
// changes, and nothing is freed or cleared when it ends: only our hold of the
// memory goes.
type bound struct {
	engine *transport.Engine
	name   devices.Name
	size   uint64
	parts  []boundPart // in order, without gaps; immutable
	// files and mems are what parts are in, once each; immutable.
	files []*os.File
	mems  []*devices.Memory
	gate  gate
	logf  func(msg string, err error)

	mu sync.Mutex
	// +checklocks:mu
	ended bool
	// cancel ends the watch over the owner; nil when there is none.
	// +checklocks:mu
	cancel func()
}

// boundPart is a stretch of the object in one file or one memory.
type boundPart struct {
	off, n uint64
	file   *os.File
	at     uint64 // in the file
	mem    *devices.Memory
}

// state says whether the owner is still there.
func (b *bound) state() metadata.BindState {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return metadata.BoundLost
	}
	return metadata.BoundLive
}

// watched keeps what ends the watch over the owner.
func (b *bound) watched(cancel func()) {
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
func (b *bound) end() {
	b.mu.Lock()
	was, cancel := b.ended, b.cancel
	b.ended = true
	b.mu.Unlock()
	if was {
		return
	}
	if cancel != nil {
		cancel()
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

func (b *bound) find(off, n uint64, _ bool) ([]piece, func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return nil, nil, fmt.Errorf("its owner has ended: %w", ErrLost)
	}
	end := min(off+n, b.size)
	var pieces []piece
	first := sort.Search(len(b.parts), func(i int) bool { return b.parts[i].off+b.parts[i].n > off })
	for i := first; i < len(b.parts) && b.parts[i].off < end; i++ {
		pieces = append(pieces, b.piece(&b.parts[i], off, end))
	}
	in := b.gate.enter()
	return pieces, func() { b.gate.leave(in) }, nil
}

// piece is what a part has of [off, end).
func (b *bound) piece(p *boundPart, off, end uint64) piece {
	from, to := max(off, p.off), min(end, p.off+p.n)
	at := piece{off: from, n: to - from}
	if p.file != nil {
		at.span = transport.FileSpan(b.name, p.file, int64(p.at+from-p.off), devices.Size(at.n))
		return at
	}
	at.dev = devices.Span{Mem: p.mem, Range: rangeOf(from-p.off, to-p.off)}
	at.span = transport.DeviceSpan(at.dev)
	return at
}

// change runs fn on the pieces of a range that holds what the object has of
// [off, off+n), and fails like a full device when that is not all of it.
func (b *bound) change(ctx context.Context, off, n uint64, fn func(ctx context.Context, at piece) error) (uint64, error) {
	fits := min(off+n, max(off, b.size)) - off
	var done uint64
	for done < fits {
		// What was begun is finished, see extents.write.
		if err := ctx.Err(); err != nil && done > 0 {
			return done, err
		}
		step := min(fits-done, maxPiece)
		pieces, release, err := b.find(off+done, step, false)
		if err != nil {
			return done, err
		}
		for _, at := range pieces {
			if err = b.whole(at); err == nil {
				err = fn(context.WithoutCancel(ctx), at)
			}
			if err != nil {
				release()
				return done, err
			}
			done += at.n
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
func (b *bound) whole(at piece) error {
	i := sort.Search(len(b.parts), func(i int) bool { return b.parts[i].off+b.parts[i].n > at.off })
	p := &b.parts[i]
	if p.file == nil {
		return nil
	}
	_, size, err := owner.Facts(p.file)
	if err != nil {
		return err
	}
	if need := p.at + at.off - p.off + at.n; size < need {
		return fmt.Errorf("its owner has cut the memory to %d bytes, %d are needed: %w", size, need, devices.ErrRange)
	}
	return nil
}

func (b *bound) write(ctx context.Context, off uint64, src transport.Span) (uint64, transport.Path, error) {
	var path transport.Path
	done, err := b.change(ctx, off, uint64(src.Len()), func(ctx context.Context, at piece) error {
		from, err := src.Part(devices.Offset(at.off-off), devices.Size(at.n))
		if err != nil {
			return err
		}
		path, err = b.engine.Copy(ctx, at.span, from)
		return err
	})
	return done, path, err
}

func (b *bound) clear(ctx context.Context, off, n uint64, keep bool) error {
	if !keep {
		return b.fixed("give a part of it back")
	}
	_, err := b.change(ctx, off, n, func(ctx context.Context, at piece) error {
		return b.engine.Fill(ctx, at.span, 0)
	})
	return err
}

func (b *bound) cut(_ context.Context, size uint64) error {
	if size == b.size {
		return nil
	}
	return b.fixed(fmt.Sprintf("resize it to %d bytes", size))
}

func (b *bound) reserve(_ context.Context, off, n uint64) error {
	if off+n <= b.size {
		return nil
	}
	return fmt.Errorf("%d bytes at %d of memory of another process, which has %d: %w", n, off, b.size, devices.ErrOutOfMemory)
}

func (b *bound) fixed(what string) error {
	return fmt.Errorf("%s: it is memory of another process; remove the file instead: %w", what, ErrBusy)
}

func (b *bound) usage() uint64                    { return b.size }
func (b *bound) settle(uint64) []metadata.Mapping { return nil }
func (b *bound) backing() *os.File                { return nil }
func (b *bound) discard() error                   { b.end(); return nil }
