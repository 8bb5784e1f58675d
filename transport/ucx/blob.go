package ucx

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// A blob is
//
//	0   4        5      6          8       8+n
//	├───┼────────┼──────┼──────────┼────────┼────────┤
//	  "HMCU"  version  kind  length n   body   CRC-32C
//
// in little-endian order. The body of an address is the worker's address; that of
// memory is its start, or its name (8 bytes), its size (8 bytes), and, if the
// library accesses it directly, the library's key. The checksum, over all bytes
// before it, detects damaged and foreign blobs; it is no protection against an
// attacker.
const (
	blobVersion   = 1
	blobHead      = 8
	blobTail      = 4
	kindAddress   = 1
	kindMemory    = 2
	kindWindow    = 3
	kindTalk      = 4
	memoryHead    = 16
	maxBody       = wire.MaxOffer - blobHead - blobTail
	maxPackedKeys = 64
	// keyPadding is the number of bytes that the library may read beyond a key
	// whose own lengths are wrong: a key has at most one entry for each of 64
	// memory domains, of one byte for the length and at most 255 others.
	keyPadding = 16 + maxPackedKeys*256
)

func blobMagic() [4]byte { return [4]byte{'H', 'M', 'C', 'U'} }

func checksum(p []byte) uint32 { return crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)) }

// encodeBlob wraps a body.
func encodeBlob(kind byte, body ...[]byte) ([]byte, error) {
	magic := blobMagic()
	p := append(magic[:], blobVersion, kind, 0, 0)
	for _, b := range body {
		p = append(p, b...)
	}
	if n := len(p) - blobHead; n > maxBody {
		return nil, fmt.Errorf("the library's data has %d bytes, more than the %d of an offer; use fewer devices, see UCX_NET_DEVICES",
			n, maxBody)
	}
	binary.LittleEndian.PutUint16(p[6:], uint16(len(p)-blobHead))
	return binary.LittleEndian.AppendUint32(p, checksum(p)), nil
}

// decodeBlob returns the body of a blob of that kind. It is a part of p.
//
// Errors: ErrOffer.
func decodeBlob(kind byte, p []byte) ([]byte, error) {
	if len(p) < blobHead+blobTail || len(p) > wire.MaxOffer {
		return nil, fmt.Errorf("%w: wrong length, %d bytes", ErrOffer, len(p))
	}
	if [4]byte(p) != blobMagic() {
		return nil, fmt.Errorf("%w: wrong magic number %x", ErrOffer, p[:4])
	}
	if p[4] != blobVersion || p[5] != kind {
		return nil, fmt.Errorf("%w: version %d and kind %d, not %d and %d", ErrOffer, p[4], p[5], blobVersion, kind)
	}
	end := len(p) - blobTail
	if n := int(binary.LittleEndian.Uint16(p[6:])); n != end-blobHead {
		return nil, fmt.Errorf("%w: body of %d bytes instead of %d", ErrOffer, end-blobHead, n)
	}
	if want := binary.LittleEndian.Uint32(p[end:]); checksum(p[:end]) != want {
		return nil, fmt.Errorf("%w: wrong checksum", ErrOffer)
	}
	return p[blobHead:end:end], nil
}

// memoryOffer describes a peer's memory.
type memoryOffer struct {
	start, size uint64
	key         []byte
}

func (m memoryOffer) encode(kind byte) ([]byte, error) {
	var head [memoryHead]byte
	binary.LittleEndian.PutUint64(head[0:], m.start)
	binary.LittleEndian.PutUint64(head[8:], m.size)
	return encodeBlob(kind, head[:], m.key)
}

// decodeMemory parses an offer of memory. Its key is a part of p.
//
// Errors: ErrOffer.
func decodeMemory(kind byte, p []byte) (memoryOffer, error) {
	body, err := decodeBlob(kind, p)
	if err != nil {
		return memoryOffer{}, err
	}
	if len(body) < memoryHead || (len(body) > memoryHead) != (kind == kindMemory) {
		return memoryOffer{}, fmt.Errorf("%w: remote key of %d bytes", ErrOffer, len(body)-memoryHead)
	}
	m := memoryOffer{
		start: binary.LittleEndian.Uint64(body[0:]), size: binary.LittleEndian.Uint64(body[8:]),
		key: body[memoryHead:],
	}
	if m.start == 0 || m.size == 0 || kind == kindMemory && m.start+m.size < m.start {
		return memoryOffer{}, fmt.Errorf("%w: invalid memory range of %d bytes at %#x", ErrOffer, m.size, m.start)
	}
	return m, nil
}
