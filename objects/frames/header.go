package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Protocol names the frames of this package in the Upgrade header. Its number changes with
// every change that an older side would misread.
const Protocol = "hmcfs-frames-3"

const (
	// HeaderSize is the size of a header, in bytes.
	HeaderSize = 16
	// MaxBody bounds the body of a frame, in bytes, in both directions.
	MaxBody = 64 << 20
)

// ErrFrame reports bytes that are no valid frame.
var ErrFrame = errors.New("invalid frame")

// Kind distinguishes frames.
type Kind uint8

// The kinds. KindCall, KindCancel, KindFile, KindRequest and KindMore are the client's, the others the daemon's.
const (
	// KindCall starts a call; its body is a Call.
	KindCall Kind = 1
	// KindCancel ends a call early: its remaining keys fail, and what it holds ends. It has no body, and no
	// answer of its own.
	KindCancel Kind = 2
	// KindHello is the first frame of the daemon; its body is a Hello.
	KindHello Kind = 3
	// KindLines has lines of the answer to a call; more frames follow.
	KindLines Kind = 4
	// KindLast has the last lines of an answer, or none.
	KindLast Kind = 5
	// KindBegun reports that a call continues in the background. Its body is empty, or a
	// Failure: that of the whole call.
	KindBegun Kind = 6
	// KindFailure ends a call of which nothing was done; its body is a Failure.
	KindFailure Kind = 7
	// KindEnded is the last frame of a session: the daemon has released all that belonged to it.
	KindEnded Kind = 8
	// KindFile is a call on files; its body is a FileCall.
	KindFile Kind = 9
	// KindFileAnswer is the whole answer to a call on files; its body is a FileAnswer.
	KindFileAnswer Kind = 10
	// KindRequest is a request; its body is JSON, and it may come with descriptors.
	KindRequest Kind = 11
	// KindReply is the whole answer to a request.
	KindReply Kind = 12
	// KindPart is an answer to a request that lasts until it is cancelled, or fails; KindLast ends it then.
	KindPart Kind = 13
	// KindMore asks for the next KindPart of a RequestWatch. It has no body.
	KindMore Kind = 14
)

// Header is the fixed part of a frame.
type Header struct {
	// Size is the size of the body, in bytes, at most MaxBody.
	Size uint32
	Kind Kind
	// Verb is the number of the verb of a KindCall, KindFile or KindRequest, and 0 in all other frames.
	Verb uint8
	// Again is set in a KindCall or KindFile that is asked again: an earlier daemon, which may have carried it out, has died before
	// it answered.
	Again bool
	// Descriptors is the number of those that were sent before, on the Channel, with a KindRequest, KindReply or KindPart.
	Descriptors uint8
	// ID is the number of the call; 0 in KindHello and KindEnded.
	ID uint64
}

// Append appends the encoded header.
func (h Header) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, h.Size)
	b = append(b, byte(h.Kind), h.Verb, 0, h.Descriptors)
	if h.Again {
		b[len(b)-2] = 1
	}
	return binary.LittleEndian.AppendUint64(b, h.ID)
}

// ParseHeader decodes the header at the start of b, which has at least HeaderSize bytes.
//
// Errors: ErrFrame.
func ParseHeader(b []byte) (Header, error) {
	h := Header{
		Size: binary.LittleEndian.Uint32(b), Kind: Kind(b[4]), Verb: b[5], Again: b[6] == 1, Descriptors: b[7],
		ID: binary.LittleEndian.Uint64(b[8:]),
	}
	switch {
	case h.Size > MaxBody:
		return Header{}, fmt.Errorf("%w: a body of %d bytes, at most %d", ErrFrame, h.Size, MaxBody)
	case h.Kind < KindCall || h.Kind > KindMore:
		return Header{}, fmt.Errorf("%w: unknown kind %d", ErrFrame, h.Kind)
	case b[6] > 1:
		return Header{}, fmt.Errorf("%w: reserved bits are not zero", ErrFrame)
	case h.Verb == 0 && !h.Again && h.Descriptors == 0 || h.Kind == KindCall && h.Descriptors == 0:
		return h, nil
	case h.Again && h.Kind != KindCall && h.Kind != KindFile, h.Verb != 0 && h.Kind != KindCall && h.Kind != KindFile && h.Kind != KindRequest:
		return Header{}, fmt.Errorf("%w: a verb, or a repetition, in a frame of kind %d", ErrFrame, h.Kind)
	case h.Descriptors > MaxDescriptors || h.Descriptors != 0 && h.Kind != KindRequest && h.Kind != KindReply && h.Kind != KindPart:
		return Header{}, fmt.Errorf("%w: %d descriptors with a frame of kind %d", ErrFrame, h.Descriptors, h.Kind)
	}
	return h, nil
}

// Begin appends the header of a frame whose body is appended next. Finish must be called with
// the length that b had before.
func Begin(b []byte, kind Kind, verb uint8, id uint64) []byte {
	return Header{Kind: kind, Verb: verb, ID: id}.Append(b)
}

// Finish stores the size of the body of the frame that starts at b[start:] and ends with b.
//
// Errors: ErrFrame for a body larger than MaxBody.
func Finish(b []byte, start int) error { return FinishWith(b, start, 0) }

// FinishWith is Finish for a frame of which more bytes follow elsewhere.
func FinishWith(b []byte, start, more int) error {
	size := len(b) - start - HeaderSize + more
	if size > MaxBody {
		return fmt.Errorf("%w: a body of %d bytes, at most %d", ErrFrame, size, MaxBody)
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(size))
	return nil
}

// SetAgain marks the call at the start of b as one that is asked again.
func SetAgain(b []byte) { b[6] = 1 }

// SetKind changes the kind of the frame at the start of b.
func SetKind(b []byte, kind Kind) { b[4] = byte(kind) }
