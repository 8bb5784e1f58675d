package moves

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
)

// HostPiece is the number of bytes moved between host and device at once: large enough that
// the cost of a command is negligible, and small enough that a cancelled call ends soon.
const HostPiece = 16 * devices.MiB

// overlapPiece is the smallest step, in bytes, by which overlapping ranges are moved in
// place; closer ones go through scratch memory of at most HostPiece.
const overlapPiece = 4 * devices.MiB

// Step moves the n bytes at offset off of a range.
type Step func(off, n devices.Size) error

// Pieces splits n bytes into pieces and calls fn for each in order, until one fails or the
// context ends. For 0 bytes fn is not called.
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

// PiecesDown is Pieces in reverse order, from the last byte to the first.
func PiecesDown(ctx context.Context, n, piece devices.Size, fn Step) error {
	return Pieces(ctx, n, piece, func(off, length devices.Size) error {
		return fn(n-off-length, length)
	})
}

// Overlap moves bytes between two overlapping ranges of one memory that have the same
// length.
type Overlap struct {
	// Piece is the maximum number of bytes that one command moves.
	Piece devices.Size
	// Copy moves a part of the source to the same part of the destination. The two parts
	// never overlap.
	Copy Step
	// Scratch allocates n bytes of scratch memory on the device. It is called at most once
	// per move.
	Scratch func(n devices.Size) (Scratch, error)
}

// Scratch is device memory for the temporary copy of a part of the source.
type Scratch struct {
	// Out copies a part of the source to the start of the scratch memory, Back copies it
	// from there to the same part of the destination.
	Out, Back Step
	// Free frees the memory after the move.
	Free func() error
}

// Move moves n bytes from one place of a memory to another as memmove does: in pieces whose
// source and destination don't overlap, starting at the end that the move does not
// overwrite first. to and from are offsets in that memory.
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

// Slot identifies one of the two places in which a Pump has a piece in flight.
type Slot int

// Pump moves n bytes in pieces, two of which are in flight at a time: while the device
// moves one, the host copies the other into or out of its slot.
type Pump struct {
	// Piece is the number of bytes that a slot moves at once.
	Piece devices.Size
	// Start starts moving a piece in a free slot.
	Start func(slot Slot, off, n devices.Size) error
	// Finish waits for the piece that was started in the slot, which is free again
	// afterwards. It is called once for every Start that has not failed, in the order of
	// the pieces, even if the move is aborted.
	Finish func(slot Slot, off, n devices.Size) error
}

// Run moves n bytes. The context is checked before each piece is started; when Run returns,
// nothing is in flight.
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
