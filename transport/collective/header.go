package collective

import (
	"encoding/binary"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// headKind is the kind of a message. Its numbers are on the wire.
type headKind uint8

const (
	// headData is the elements of a step.
	headData headKind = iota + 1
	// headControl is a message of the ranks about a call: see messenger.
	headControl
)

// header stands before each message, so that ranks which have got out of step
// get an error that says so, and not each other's elements:
//
//	0   call
//	4   kind
//	5   magic
//	6   step
//	8   size, 48 bits
//	14  digest
type header struct {
	// call is the number of the call.
	call uint32
	kind headKind
	// step is the number of the message of this link and direction; of control, its
	// purpose.
	step uint16
	// size is the bytes behind the header.
	size uint64
	// digest is that of the call's arguments.
	digest uint16
}

const (
	// headSize is the bytes of a header.
	headSize  = 16
	headMagic = 0xc7
	sizeMask  = 1<<48 - 1
)

// put writes the header.
func (h header) put(b *[headSize]byte) {
	binary.LittleEndian.PutUint32(b[:], h.call)
	b[4], b[5] = byte(h.kind), headMagic
	binary.LittleEndian.PutUint16(b[6:], h.step)
	binary.LittleEndian.PutUint64(b[8:], h.size&sizeMask|uint64(h.digest)<<48)
}

// readHeader reads a header; ok is false for what is none.
func readHeader(b *[headSize]byte) (h header, ok bool) {
	word := binary.LittleEndian.Uint64(b[8:])
	h = header{
		call: binary.LittleEndian.Uint32(b[:]), kind: headKind(b[4]), step: binary.LittleEndian.Uint16(b[6:]),
		size: word & sizeMask, digest: uint16(word >> 48),
	}
	return h, b[5] == headMagic && (h.kind == headData || h.kind == headControl)
}

// expect reads the header that a peer has sent, and compares it with the one
// that is due.
//
// Errors: an OutOfStepError.
func expect(b *[headSize]byte, peer plan.Rank, want header) error {
	want.size &= sizeMask
	got, ok := readHeader(b)
	if ok && got == want {
		return nil
	}
	e := &OutOfStepError{Peer: peer, Call: want.call}
	switch {
	case !ok:
		e.What = fmt.Sprintf("sends %x, which begins no message", b[:])
	case got.call != want.call:
		e.What = fmt.Sprintf("is in call %d", got.call)
	case got.kind != want.kind && got.kind == headControl:
		e.What = "compares arguments"
	case got.kind != want.kind:
		e.What = "sends elements and compares no arguments"
	case got.digest != want.digest:
		e.What = "does something else"
	case got.step != want.step:
		e.What = fmt.Sprintf("is at message %d and not %d", got.step, want.step)
	default:
		e.What = fmt.Sprintf("sends %d bytes and not %d", got.size, want.size)
	}
	return e
}
