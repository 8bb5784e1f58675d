package objects

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
)

// sessionBinding is the record of a binding to memory of a session that a later daemon continues. It is
// written with each key, so it has a form of its own, and not that of binding.
type sessionBinding struct {
	// holder identifies the session.
	holder sessionID
	uid    uint32
	// call is the number of the call that has published the object, in the session; 0 for a key.
	call uint64
	// blobs are those of the object: the numbers of their regions, offsets and lengths in turn.
	blobs []uint64
}

// sessionID identifies a session across daemons: a hash of its secret name. Zero is none.
type sessionID [16]byte

// sessionMark is the first byte of the record, and its version: an older or newer record has another one. Those of
// binding begin with a brace.
const sessionMark = 1

// bindingOf returns the record of a binding to blobs of the holder; nil if no later daemon continues it.
func (h *Holder) bindingOf(ctx context.Context, blobs []Blob) []byte {
	if h.id == (sessionID{}) {
		return nil
	}
	b := make([]byte, 0, 1+len(h.id)+2*binary.MaxVarintLen64+len(blobs)*16)
	b = append(append(b, sessionMark), h.id[:]...)
	b = binary.AppendUvarint(b, uint64(h.who.UID))
	b = binary.AppendUvarint(b, callOf(ctx).number)
	for i := range blobs {
		b = binary.AppendUvarint(b, blobs[i].Region.number)
		b = binary.AppendUvarint(b, blobs[i].Off)
		b = binary.AppendUvarint(b, blobs[i].Len)
	}
	if len(b) >= metadata.MaxBinding {
		return nil // no record has room for so many: the object ends with this daemon
	}
	return b
}

// isSessionBinding reports whether a record of a binding is that of a session.
func isSessionBinding(record []byte) bool { return len(record) > 0 && record[0] == sessionMark }

// parseSessionBinding is the inverse of bindingOf.
//
// Errors: metadata.ErrCorrupt.
func parseSessionBinding(record []byte) (s sessionBinding, err error) {
	damaged := fmt.Errorf("read the binding to memory of a session: %w", metadata.ErrCorrupt)
	rest := bytes.TrimPrefix(record, []byte{sessionMark})
	if len(rest) < len(s.holder) {
		return s, damaged
	}
	rest = rest[copy(s.holder[:], rest):]
	var numbers []uint64
	for len(rest) > 0 {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return s, damaged
		}
		numbers, rest = append(numbers, v), rest[n:]
	}
	if len(numbers) < 2 || len(numbers)%3 != 2 || numbers[0] > 1<<32-1 {
		return s, damaged
	}
	s.uid, s.call, s.blobs = uint32(numbers[0]), numbers[1], numbers[2:]
	return s, nil
}
