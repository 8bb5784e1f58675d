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
	// idents caches those of earlier calls, of which agreed have been compared. age counts
	// how often the cache was cleared.
	idents map[frame]*ident
	agreed int
	age    uint32
}

func newSequence() *sequence {
	s := &sequence{idents: map[frame]*ident{}}
	s.ident = s.intern(frame{})
	return s
}

// ident holds a call's arguments, and values derived from them.
type ident struct {
	frame frame
	// digest is the digest of the frame for message headers, and name describes the call.
	digest uint16
	name   string
	// agreed reports that all ranks have compared it.
	agreed bool
	// age is sequence.age at its creation: an older ident is no longer in the cache.
	age uint32
}

// maxAgreed bounds how many calls are remembered as compared. All ranks clear the cache at
// the same call, since they have made the same ones. There may be as many that were not
// compared.
const maxAgreed = 4096

// intern returns the ident of a frame, the same one until the cache is cleared.
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

// forget clears the cache, so that all calls are new.
func (s *sequence) forget() {
	clear(s.idents)
	s.agreed = 0
	s.age++
}

// agree records that all ranks have compared the current call.
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

// stamp encodes the header of the nth message to a peer in the current call.
func (s *sequence) stamp(b *[headSize]byte, nth uint16, size uint64) {
	header{call: s.call, kind: headData, step: nth, size: size, digest: s.ident.digest}.put(b)
}

// verify checks that a header is that of a peer's nth message to this rank in the current
// call.
//
// Errors: an OutOfStepError.
func (s *sequence) verify(b *[headSize]byte, peer plan.Rank, nth uint16, size uint64) error {
	return expect(b, peer, header{call: s.call, kind: headData, step: nth, size: size, digest: s.ident.digest})
}

// digest returns the CRC-16 of a frame.
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

// name describes a call with this frame.
func (f *frame) name() string {
	fields := f.fields()
	if f[0] >= kindControl {
		return fields[0].Local
	}
	return fmt.Sprintf("%s of %s × %s by %s", fields[0].Local, fields[5].Local, fields[1].Local, fields[6].Local)
}
