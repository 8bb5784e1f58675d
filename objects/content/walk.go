package content

import "context"

// walkStep is the number of bytes of a source that Walk looks up at a time: as many as
// one device call may move.
const walkStep = longPiece

// Range describes a range of an object at one moment.
type Range struct {
	// N is the length in bytes. It is shorter than the request only at the object's end.
	N      uint64
	Pieces []Piece
	// Release ends the use of the pieces.
	Release func()
}

// Walk passes the pieces of n bytes at off to put, in order, until look returns an empty
// range. It calls look for each step, since the object may get other content meanwhile.
//
// Errors: the context's, look's and put's.
func Walk(ctx context.Context, look func(off, n uint64) (Range, error), off, n uint64, put func(Piece) error) error {
	for end := off + n; off < end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		seen, err := look(off, min(end-off, walkStep))
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
