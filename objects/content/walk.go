package content

import (
	"context"
	"slices"
)

// WalkStep is the number of bytes of a source that Walk looks up at a time: as many as
// one device call may move.
const WalkStep = longPiece

// Range describes a range of an object at one moment. A range of one piece, in memory behind at most
// two gates, needs no memory of its own.
type Range struct {
	// N is the length in bytes. It is shorter than the request only at the object's end.
	N uint64
	// first is the first of count pieces, and more has the others.
	first Piece
	more  []Piece
	count int
	in    stay
	// done is called at the end; nil for none.
	done func()
}

// Len returns the number of pieces.
func (r *Range) Len() int { return r.count }

// At returns the i-th piece, which is valid as long as the range.
func (r *Range) At(i int) *Piece {
	if i == 0 {
		return &r.first
	}
	return &r.more[i-1]
}

// Pieces returns all pieces.
func (r *Range) Pieces() []Piece {
	if r.count == 0 {
		return nil
	}
	return append([]Piece{r.first}, r.more...)
}

// add appends a piece.
func (r *Range) add(p Piece) {
	if r.count == 0 {
		r.first = p
	} else {
		r.more = append(r.more, p)
	}
	r.count++
}

// Then has done called when the use of the pieces ends. It may be called once.
func (r *Range) Then(done func()) { r.done = done }

// Release ends the use of the pieces.
func (r *Range) Release() {
	r.in.leave()
	if r.done != nil {
		r.done()
	}
}

// stay is a reader's presence in the gates of everything that it reads.
type stay struct {
	few   [3]stayed
	count int
	more  []stayed
}

type stayed struct {
	gate *gate
	in   *generation
}

// inside reports whether the reader is in a gate.
func (s *stay) inside(g *gate) bool {
	for i := range s.few[:s.count] {
		if s.few[i].gate == g {
			return true
		}
	}
	return slices.ContainsFunc(s.more, func(e stayed) bool { return e.gate == g })
}

// enter enters a gate.
func (s *stay) enter(g *gate) {
	one := stayed{g, g.enter()}
	if s.count < len(s.few) {
		s.few[s.count] = one
		s.count++
		return
	}
	s.more = append(s.more, one)
}

func (s *stay) leave() {
	for _, e := range s.few[:s.count] {
		e.gate.leave(e.in)
	}
	for _, e := range s.more {
		e.gate.leave(e.in)
	}
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
		seen, err := look(off, min(end-off, WalkStep))
		if err != nil || seen.N == 0 {
			return err
		}
		for i := range seen.Len() {
			if i > 0 {
				err = ctx.Err()
			}
			if err == nil {
				err = put(*seen.At(i))
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
