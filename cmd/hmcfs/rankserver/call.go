package rankserver

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// Protocol names the calls of this package, in the greeting. Its number changes with every
// change that an older side would misread.
const Protocol = "hmcfs-rank-1"

// callSize is the size, in bytes, of the body of a call.
const callSize = 72

// Verb selects the operation of a call.
type Verb uint8

// The verbs.
const (
	// VerbAlloc allocates Number bytes. The answer has the number of the memory, and its
	// descriptor.
	VerbAlloc Verb = 1 + iota
	// VerbAllocShared is VerbAlloc at all ranks, each with its own size: every rank maps the
	// memory of all.
	VerbAllocShared
	// VerbFree releases the memory of Source.
	VerbFree
	// VerbOpenWindow allocates a window of Number bytes at all ranks; the answer is that of
	// VerbAlloc.
	VerbOpenWindow
	// VerbCloseWindow releases the windows of all ranks.
	VerbCloseWindow
	// VerbSend sends Source to Peer, with the tag Number.
	VerbSend
	// VerbRecv receives the next message of Peer with the tag Number into Result.
	VerbRecv
	// VerbPut copies Source into the window of Peer, from byte Number on.
	VerbPut
	// VerbGet copies from the window of Peer, from byte Number on, into Result.
	VerbGet
	// VerbTag sends Number to Peer, behind all earlier puts.
	VerbTag
	// VerbRecvTag answers with the next number of VerbTag from Peer.
	VerbRecvTag
	// VerbFlush waits until all ranks have received what this one has sent.
	VerbFlush
	// VerbAllReduce and the following verbs are those of package collective; Peer is the root.
	VerbAllReduce
	VerbReduceScatter
	VerbAllGather
	VerbBroadcast
	VerbReduce
	VerbAllToAll
	VerbBarrier
)

// Range is a range of elements in memory of the server.
type Range struct {
	// Memory is the number of the memory; 0 means none.
	Memory uint64
	// Offset is in bytes, Count in elements.
	Offset devices.Offset
	Count  uint64
}

// Call is one call of the rank.
type Call struct {
	Type elem.Type
	Op   elem.Op
	// Peer is the other rank, or the root.
	Peer uint32
	// Number is a size, a tag, or an offset in a window.
	Number uint64
	// Timeout bounds the call; 0 leaves it to the library's own bounds.
	Timeout time.Duration
	Source  Range
	Result  Range
}

// Append appends the body of the call.
func (c *Call) Append(b []byte) []byte {
	b = append(b, byte(c.Type), byte(c.Op), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, c.Peer)
	b = binary.LittleEndian.AppendUint64(b, c.Number)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Timeout))
	for _, r := range [...]Range{c.Source, c.Result} {
		b = binary.LittleEndian.AppendUint64(b, r.Memory)
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Offset))
		b = binary.LittleEndian.AppendUint64(b, r.Count)
	}
	return b
}

// ParseCall decodes the body of a call.
//
// Errors: frames.ErrFrame.
func ParseCall(body []byte) (*Call, error) {
	if len(body) != callSize {
		return nil, fmt.Errorf("%w: a call of %d bytes, must have %d", frames.ErrFrame, len(body), callSize)
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(body[at:]) }
	c := &Call{
		Type: elem.Type(body[0]), Op: elem.Op(body[1]), Peer: binary.LittleEndian.Uint32(body[4:]),
		Number: word(8), Timeout: time.Duration(word(16)),
		Source: Range{word(24), devices.Offset(word(32)), word(40)},
		Result: Range{word(48), devices.Offset(word(56)), word(64)},
	}
	switch {
	case body[2] != 0 || body[3] != 0:
		return nil, fmt.Errorf("%w: reserved bytes of a call are not zero", frames.ErrFrame)
	case c.Timeout < 0:
		return nil, fmt.Errorf("%w: a timeout of %v", frames.ErrFrame, c.Timeout)
	}
	return c, nil
}
