package collective

import (
	"encoding/binary"
	"fmt"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// headKind is the kind of a message. Its values are used on the wire.
type headKind uint8

const (
	// headData carries the elements of a step.
	headData headKind = iota + 1
	// headControl is a control message about a call: see messenger.
	headControl
)

// header precedes each message, so that ranks that are out of step get an error that says so
// instead of each other's elements:
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
	// step is the index of the message on this link in this direction; for a control
	// message, its purpose.
	step uint16
	// size is the number of bytes after the header.
	size uint64
	// digest is that of the call's arguments.
	digest uint16
}

const (
	// headSize is the size, in bytes, of a header.
	headSize  = 16
	headMagic = 0xc7
	sizeMask  = 1<<48 - 1
)

func (h header) put(b *[headSize]byte) {
	binary.LittleEndian.PutUint32(b[:], h.call)
	b[4], b[5] = byte(h.kind), headMagic
	binary.LittleEndian.PutUint16(b[6:], h.step)
	binary.LittleEndian.PutUint64(b[8:], h.size&sizeMask|uint64(h.digest)<<48)
}

// readHeader decodes a header; ok is false if the bytes are not a header.
func readHeader(b *[headSize]byte) (h header, ok bool) {
	word := binary.LittleEndian.Uint64(b[8:])
	h = header{
		call: binary.LittleEndian.Uint32(b[:]), kind: headKind(b[4]), step: binary.LittleEndian.Uint16(b[6:]),
		size: word & sizeMask, digest: uint16(word >> 48),
	}
	return h, b[5] == headMagic && (h.kind == headData || h.kind == headControl)
}

// expect decodes the header that a peer has sent, and compares it with the expected one.
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
		e.What = fmt.Sprintf("sends %x, which is not a message header", b[:])
	case got.call != want.call:
		e.What = fmt.Sprintf("is in call %d", got.call)
	case got.kind != want.kind && got.kind == headControl:
		e.What = "is comparing arguments"
	case got.kind != want.kind:
		e.What = "sends elements instead of comparing arguments"
	case got.digest != want.digest:
		e.What = "performs a different operation"
	case got.step != want.step:
		e.What = fmt.Sprintf("is at message %d instead of %d", got.step, want.step)
	default:
		e.What = fmt.Sprintf("sends %d bytes instead of %d", got.size, want.size)
	}
	return e
}
