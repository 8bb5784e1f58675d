package frames

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// The bits of a call.
const (
	callReplica = 1 << iota
	callPublished
	callAsync
	callReceived
	callBits
)

const (
	// keyFixed, listFixed and blobSize are the least sizes, in bytes, of a key, a list and a blob.
	keyFixed, listFixed, blobSize = 2, 13, 24
)

// Verbs returns the verbs of calls: the number of each in a header is its index and one.
func Verbs() []adminapi.Verb {
	return []adminapi.Verb{
		adminapi.VerbPublish, adminapi.VerbSubscribe, adminapi.VerbClaim, adminapi.VerbFetch, adminapi.VerbSettle,
		adminapi.VerbMSet, adminapi.VerbMGet, adminapi.VerbDelete, adminapi.VerbLocalDelete, adminapi.VerbMSetD2H,
		adminapi.VerbMGetH2D, adminapi.VerbExist, adminapi.VerbInfo, adminapi.VerbExpire, adminapi.VerbWait,
		adminapi.VerbUnregister, adminapi.VerbContinue,
	}
}

// VerbNumber returns the number of a verb in a header; 0 for an unknown verb.
func VerbNumber(v adminapi.Verb) uint8 { return uint8(slices.Index(Verbs(), v) + 1) }

// rules returns the rules for existing keys: the number of each is its index.
func rules() [4]hetero.Existing {
	return [4]hetero.Existing{"", hetero.ExistingSkip, hetero.ExistingReplace, hetero.ExistingFail}
}

// AppendCall appends the body of a call.
//
// Errors: ErrFrame for a key, device or rule that the format cannot represent.
func AppendCall(b []byte, q *adminapi.Call) ([]byte, error) {
	all := rules()
	rule := slices.Index(all[:], q.Existing)
	if rule < 0 {
		return nil, fmt.Errorf("%w: unknown rule for existing keys %q", ErrFrame, string(q.Existing))
	}
	b = append(b, bitsOf(q), byte(rule), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(q.Keys)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(q.Lists)))
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(q.Timeout))
	b = binary.LittleEndian.AppendUint64(b, uint64(q.TTL))
	b = binary.LittleEndian.AppendUint64(b, uint64(q.Memory))
	for _, key := range q.Keys {
		if len(key) > 1<<16-1 {
			return nil, fmt.Errorf("%w: a key of %d bytes", ErrFrame, len(key))
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
		b = append(b, key...)
	}
	for i := range q.Lists {
		l := &q.Lists[i]
		if len(l.Device) > 1<<8-1 {
			return nil, fmt.Errorf("%w: a device name of %d bytes", ErrFrame, len(l.Device))
		}
		b = append(b, byte(len(l.Device)))
		b = append(b, l.Device...)
		b = binary.LittleEndian.AppendUint64(b, uint64(l.SourceOffset))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Blobs)))
		for _, blob := range l.Blobs {
			b = binary.LittleEndian.AppendUint64(b, uint64(blob.Memory))
			b = binary.LittleEndian.AppendUint64(b, uint64(blob.Off))
			b = binary.LittleEndian.AppendUint64(b, uint64(blob.Size))
		}
	}
	return b, nil
}

func bitsOf(q *adminapi.Call) (bits byte) {
	for i, is := range []bool{q.Replica, q.Published, q.Async, q.Received} {
		if is {
			bits |= 1 << i
		}
	}
	return bits
}

// Names returns one string for equal bytes, so that keys and devices that come again need no
// allocation. It forgets all of them once it has maxNames. The zero value is ready to use. It
// must not be used concurrently.
type Names struct {
	known map[string]string
}

const (
	// maxNames bounds the strings that Names keeps, and longestName their length, in bytes.
	maxNames    = 1024
	longestName = 255
)

func (n *Names) of(b []byte) string {
	if s, ok := n.known[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(s) > longestName {
		return s
	}
	if n.known == nil {
		n.known = map[string]string{}
	} else if len(n.known) >= maxNames {
		clear(n.known)
	}
	n.known[s] = s
	return s
}

// ParseCall decodes the body of a call into q, whose slices it uses again. q does not refer to
// body afterwards.
//
// Errors: ErrFrame.
func ParseCall(body []byte, q *adminapi.Call, names *Names) error {
	c := cursor{rest: body}
	bits, rule, pad := c.u8(), c.u8(), c.u16()
	keys, lists, pad2 := c.u32(), c.u32(), c.u32()
	timeout, ttl, memory := c.u64(), c.u64(), c.u64()
	all := rules()
	switch {
	case c.err != nil:
	case bits >= callBits || pad != 0 || pad2 != 0:
		c.err = fmt.Errorf("%w: reserved bits of a call are not zero", ErrFrame)
	case int(rule) >= len(all):
		c.err = fmt.Errorf("%w: unknown rule %d for existing keys", ErrFrame, rule)
	case keys > hetero.MaxKeys || lists > hetero.MaxKeys:
		c.err = fmt.Errorf("%w: %d keys and %d lists, at most %d", ErrFrame, keys, lists, hetero.MaxKeys)
	case uint64(keys)*keyFixed+uint64(lists)*listFixed > uint64(len(c.rest)):
		c.err = fmt.Errorf("%w: %d keys and %d lists in %d bytes", ErrFrame, keys, lists, len(c.rest))
	}
	if c.err != nil {
		return c.err
	}
	*q = adminapi.Call{
		Keys: q.Keys[:0], Lists: q.Lists[:0], Memory: hetero.MemoryID(memory), Existing: all[rule],
		Timeout: adminapi.Duration(time.Duration(timeout)), TTL: adminapi.Duration(time.Duration(ttl)),
		Replica: bits&callReplica != 0, Published: bits&callPublished != 0, Async: bits&callAsync != 0,
		Received: bits&callReceived != 0,
	}
	for range keys {
		q.Keys = append(q.Keys, names.of(c.take(int(c.u16()))))
	}
	for range lists {
		c.list(q, names)
	}
	return c.end()
}

// device reads the name of a list's device, which is that of the list before in nearly all calls.
func (c *cursor) device(q *adminapi.Call, names *Names) devices.Name {
	name := c.take(int(c.u8()))
	if n := len(q.Lists); n > 0 && string(q.Lists[n-1].Device) == string(name) {
		return q.Lists[n-1].Device
	}
	return devices.Name(names.of(name))
}

// list appends one list of blobs to a call.
func (c *cursor) list(q *adminapi.Call, names *Names) {
	var blobs []hetero.Blob
	if n := len(q.Lists); n < cap(q.Lists) {
		blobs = q.Lists[:n+1][n].Blobs[:0]
	}
	l := hetero.DeviceBlobList{Device: c.device(q, names), SourceOffset: int64(c.u64())}
	n := c.count(blobSize)
	blobs = slices.Grow(blobs, n)
	for range n {
		blobs = append(blobs, hetero.Blob{
			Memory: hetero.MemoryID(c.u64()), Off: devices.Offset(c.u64()), Size: devices.Size(c.u64()),
		})
	}
	l.Blobs = blobs
	q.Lists = append(q.Lists, l)
}
