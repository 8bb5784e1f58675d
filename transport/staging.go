package transport

import (
	"context"
	"net"

	"github.com/hmcfs/hmcfs/devices"
)

// staged copies through pinned slots, with one worker for each, concurrently:
//
//	worker 0   read chunk 0 │ write chunk 0 │ read chunk 2 │ write chunk 2
//	worker 1                │ read chunk 1  │ write chunk 1 │ read chunk 3 …
//
// A worker reads a chunk from src and writes the same chunk to dst, so that
// the chunk is still in the cache of the worker's core. No more than half of
// the workers are in one stage, so both ends are always busy.
//
// The workers stop at the first error of any. When staged returns, all have ended
// and every slot has been returned.
func (e *Engine) staged(ctx context.Context, dst, src Span) error {
	// Slots that are created for this copy are on the same node: memory is placed
	// on the node of the thread that touches it first.
	node := nodeOf(dst, src)
	defer e.opts.Enter(node)()
	slots, err := e.takeSlots(ctx, dst, src)
	if err != nil {
		return err
	}
	defer func() {
		for _, s := range slots {
			s.Release()
		}
	}()
	if len(slots) == 1 {
		return oneByOne(ctx, inPieces, dst, src, slots[0])
	}
	return sideBySide(ctx, dst, src, slots, func() func() { return e.opts.Enter(node) })
}

// EnterNear moves the calling goroutine's thread to the processors nearest to the
// network card of a connection, identified by its local address, until it calls
// leave: see Options.Enter and Near.
func (e *Engine) EnterNear(local net.Addr) (leave func()) {
	at, ok := local.(*net.TCPAddr)
	if !ok {
		return func() {}
	}
	return e.opts.Enter(e.opts.Near(at.AddrPort().Addr()))
}

// nodeOf returns the NUMA node of the first span that is on a device with one, or
// -1.
func nodeOf(spans ...Span) int {
	for _, s := range spans {
		if s.kind() == kindDevice {
			if node := s.dev.Mem.Device().Info().NUMA; node >= 0 {
				return node
			}
		}
	}
	return -1
}

// takeSlots takes as many slots as the copy can use, at most Options.Slots. It
// waits for the first slot only: a copy that holds some and waits for more could
// wait for another that does the same.
func (e *Engine) takeSlots(ctx context.Context, dst, src Span) ([]*Slot, error) {
	size := min(e.opts.ChunkSize, src.n)
	first, err := e.slots.Get(ctx, size)
	if err != nil {
		return nil, err
	}
	slots := []*Slot{first}
	for len(slots) < e.opts.Slots && devices.Size(len(slots))*size < src.n {
		next, ok := e.slots.TryGet(size)
		if !ok {
			break
		}
		slots = append(slots, next)
	}
	for _, s := range slots {
		for _, end := range []Span{src, dst} {
			if end.kind() == kindDevice {
				s.Pin(end.dev.Mem.Device())
			}
		}
	}
	return slots, nil
}

// fill and drain implement the two stages for one chunk.
func fill(ctx context.Context, p []byte, src Span) error {
	if src.kind() == kindDevice {
		return copyOut(ctx, p, src)
	}
	return readFile(p, src)
}

func drain(ctx context.Context, dst Span, p []byte) error {
	if dst.kind() == kindDevice {
		return copyIn(ctx, dst, p)
	}
	return writeFile(dst, p)
}

// oneByOne performs the copy with a single slot, in the order of walk: inPieces or
// inPiecesBackward.
func oneByOne(ctx context.Context, walk walker, dst, src Span, slot *Slot) error {
	return walk(ctx, src.n, devices.Size(len(slot.Bytes())), func(off, n devices.Size) error {
		p := slot.Bytes()[:n]
		if err := fill(ctx, p, src.sub(off, n)); err != nil {
			return err
		}
		return drain(ctx, dst.sub(off, n), p)
	})
}

// pipeline is one staged copy in progress, with a worker for each slot.
type pipeline struct {
	pieces

	dst, src Span
	slots    []*Slot
	// reading and writing hold a token for each worker in that stage.
	reading, writing chan struct{}
}

// sideBySide runs one worker for each slot, the first on the caller's goroutine,
// which has already entered the node; the others enter it by enter.
func sideBySide(ctx context.Context, dst, src Span, slots []*Slot, enter func() (leave func())) error {
	width := (len(slots) + 1) / 2
	p := &pipeline{
		dst: dst, src: src, slots: slots,
		reading: make(chan struct{}, width),
		writing: make(chan struct{}, width),
	}
	size := uint64(len(slots[0].Bytes()))
	p.count = (uint64(src.n) + size - 1) / size
	return p.move(ctx, len(slots), enter, p)
}

// movePiece passes one chunk through both stages, in the slot of the worker.
func (p *pipeline) movePiece(ctx context.Context, worker int, number uint64) error {
	mem := p.slots[worker].Bytes()
	off := devices.Size(number) * devices.Size(len(mem))
	n := min(devices.Size(len(mem)), p.src.n-off)
	if err := within(ctx, p.reading, func() error { return fill(ctx, mem[:n], p.src.sub(off, n)) }); err != nil {
		return err
	}
	return within(ctx, p.writing, func() error { return drain(ctx, p.dst.sub(off, n), mem[:n]) })
}

// within runs fn while it holds a token of the stage.
func within(ctx context.Context, stage chan struct{}, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case stage <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-stage }()
	return fn()
}
