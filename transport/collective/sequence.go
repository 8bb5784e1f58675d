package collective

import (
	"fmt"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// sequence numbers the calls of a rank and holds the arguments of the current one, with
// which it marks messages. It belongs to one group; Group.mu guards it.
type sequence struct {
	tally
	// ident holds the arguments of the current call.
	ident *ident
	// idents are those of the calls before, of which agreed were compared. age is
	// how often they were forgotten.
	idents map[frame]*ident
	agreed int
	age    uint32
}

func newSequence() *sequence {
	s := &sequence{idents: map[frame]*ident{}}
	s.ident = s.intern(frame{})
	return s
}

// ident is a call's arguments, and what is found out for them once.
type ident struct {
	frame frame
	// digest is the part of the frame in each message's header, and name how the
	// call is called.
	digest uint16
	name   string
	// agreed says that all ranks have compared it.
	agreed bool
	// age is sequence.age when it was made: what is older was forgotten.
	age uint32
}

// maxAgreed bounds how many calls are remembered as compared. All ranks forget
// at the same call, since they have made the same ones. Of those that came to
// nothing there may be as many again.
const maxAgreed = 4096

// intern returns the ident of a frame, the same one until all are forgotten.
func (s *sequence) intern(f frame) *ident {
	if i := s.idents[f]; i != nil {
		return i
	}
	if len(s.idents) >= 2*maxAgreed {
		s.forget()
	}
	i := &ident{frame: f, digest: f.digest(), name: f.name(), age: s.age}
	s.idents[f] = i
	return i
}

// forget has all calls be new ones.
func (s *sequence) forget() {
	clear(s.idents)
	s.agreed = 0
	s.age++
}

// agree notes that all ranks have compared the call under way.
func (s *sequence) agree() {
	if s.ident.agreed {
		return
	}
	if s.agreed == maxAgreed {
		s.forget()
		s.ident.age = s.age
		s.idents[s.ident.frame] = s.ident
	}
	s.ident.agreed = true
	s.agreed++
}

// stamp writes the header of the nth message to a peer in the current call.
func (s *sequence) stamp(b *[headSize]byte, nth uint16, size uint64) {
	header{call: s.call, kind: headData, step: nth, size: size, digest: s.ident.digest}.put(b)
}

// verify checks that a peer has sent the header of its nth message to this rank in
// the current call.
//
// Errors: an OutOfStepError.
func (s *sequence) verify(b *[headSize]byte, peer plan.Rank, nth uint16, size uint64) error {
	return expect(b, peer, header{call: s.call, kind: headData, step: nth, size: size, digest: s.ident.digest})
}

// digest is 16 bits that stand for a frame.
func (f *frame) digest() uint16 {
	const polynomial = 0x1021
	sum := uint16(0xffff)
	for _, b := range f {
		sum ^= uint16(b) << 8
		for range 8 {
			if carry := sum & 0x8000; carry != 0 {
				sum = sum<<1 ^ polynomial
			} else {
				sum <<= 1
			}
		}
	}
	return sum
}

// name returns the name of a call of the frame.
func (f *frame) name() string {
	fields := f.fields()
	if f[0] >= kindControl {
		return fields[0].Local
	}
	return fmt.Sprintf("%s of %s × %s by %s", fields[0].Local, fields[5].Local, fields[1].Local, fields[6].Local)
}
