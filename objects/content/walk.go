package content

import "context"

// copyStep is the number of bytes of a source that are looked at at a time: as much as
// one device call may move.
const copyStep = longPiece

// sight describes a range of an object at one moment.
type Range struct {
	// n is the range's length: less than was asked for only at the end.
	N      uint64
	Pieces []Piece
	// release lets go of the memory of the pieces.
	Release func()
}

// copyContent hands the pieces of a range to put, a step at a time, up to where
// look finds the end. look is asked for each step: another content may have
// taken the place of the first.
func Walk(ctx context.Context, look func(off, n uint64) (Range, error), off, n uint64, put func(Piece) error) error {
	for end := off + n; off < end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		seen, err := look(off, min(end-off, copyStep))
		if err != nil || seen.N == 0 {
			return err
		}
		for _, at := range seen.Pieces {
			err := ctx.Err()
			if err == nil {
				err = put(at)
			}
			if err != nil {
				seen.Release()
				return err
			}
		}
		seen.Release()
		off += seen.N
	}
	return nil
}
