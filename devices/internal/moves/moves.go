package moves

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
)

// HostPiece is the number of bytes moved between host and device at once, in bytes:
// large enough that a command's cost does not show, and so short that a
// cancelled call ends soon.
const HostPiece = 16 * devices.MiB

// overlapPiece is the least step by which overlapping ranges are moved in
// place, in bytes; closer ones go through scratch memory of at most HostPiece.
const overlapPiece = 4 * devices.MiB

// Step moves the n bytes that begin off bytes into a range.
type Step func(off, n devices.Size) error

// Pieces cuts n bytes and calls fn for each piece in order, until one fails or
// the context ends. Nothing is called for 0 bytes.
func Pieces(ctx context.Context, n, piece devices.Size, fn Step) error {
	for off := devices.Size(0); off < n; off += piece {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(off, min(piece, n-off)); err != nil {
			return err
		}
	}
	return nil
}

// PiecesDown is Pieces from the last byte to the first.
func PiecesDown(ctx context.Context, n, piece devices.Size, fn Step) error {
	return Pieces(ctx, n, piece, func(off, length devices.Size) error {
		return fn(n-off-length, length)
	})
}

// Overlap moves bytes between two ranges of one memory, of
// the same length, that overlap.
type Overlap struct {
	// Piece is the most that one command moves, in bytes.
	Piece devices.Size
	// Copy moves a part of the source to the same part of the destination.
	// The two never overlap.
	Copy Step
	// Scratch takes n bytes of device memory aside. It is called at most once
	// for a move.
	Scratch func(n devices.Size) (Scratch, error)
}

// Scratch is device memory that a part of the source is put aside in.
type Scratch struct {
	// Out brings a part of the source to the beginning of the scratch memory,
	// Back brings it from there to the same part of the destination.
	Out, Back Step
	// Free gives the memory back once the move is over.
	Free func() error
}

// Move moves n bytes from one place of a memory to another as memmove does: in
// pieces whose source and destination don't overlap, begun at the end that the
// move does not overwrite first. to and from are offsets in that memory.
func (o Overlap) Move(ctx context.Context, to, from devices.Offset, n devices.Size) (err error) {
	distance := devices.Size(max(to, from) - min(to, from))
	if distance == 0 {
		return ctx.Err()
	}
	cut := Pieces
	if to > from {
		cut = PiecesDown
	}
	if distance >= min(overlapPiece, n) {
		return cut(ctx, n, min(distance, o.Piece), o.Copy)
	}
	piece := min(n, HostPiece)
	aside, err := o.Scratch(piece)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, aside.Free()) }()
	return cut(ctx, n, piece, func(off, n devices.Size) error {
		if err := aside.Out(off, n); err != nil {
			return err
		}
		return aside.Back(off, n)
	})
}

// Slot is one of the two places in which a Pump has a piece on its way.
type Slot int

// Pump moves n bytes in pieces, two of which are on their way at a time: while
// the device moves one, the host copies the other into or out of its slot.
type Pump struct {
	// Piece is the number of bytes that a slot moves at once.
	Piece devices.Size
	// Start sets a piece on its way in a slot that is free.
	Start func(slot Slot, off, n devices.Size) error
	// Finish waits for the piece that was started in the slot, which is free
	// again afterwards. It is called once for every Start that has not failed,
	// in the order of the pieces, also when the move is given up.
	Finish func(slot Slot, off, n devices.Size) error
}

// Run moves n bytes. The context is looked at before each piece is started;
// when Run returns nothing is on its way.
func (p Pump) Run(ctx context.Context, n devices.Size) error {
	var started [2]struct {
		off, n devices.Size
		busy   bool
	}
	next := Slot(0)
	finish := func(s Slot) error {
		if !started[s].busy {
			return nil
		}
		started[s].busy = false
		return p.Finish(s, started[s].off, started[s].n)
	}
	err := Pieces(ctx, n, p.Piece, func(off, n devices.Size) error {
		if err := finish(next); err != nil {
			return err
		}
		if err := p.Start(next, off, n); err != nil {
			return err
		}
		started[next].off, started[next].n, started[next].busy = off, n, true
		next = 1 - next
		return nil
	})
	// The older one first.
	return errors.Join(err, finish(next), finish(1-next))
}
