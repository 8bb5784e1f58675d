package metadata

import "encoding/binary"

// The first byte of a key is the kind of its record; see doc.go.
const (
	kindSuper   = 'S'
	kindAlloc   = 'A'
	kindDevice  = 'v'
	kindInode   = 'i'
	kindDirent  = 'd'
	kindLink    = 'l'
	kindXattr   = 'x'
	kindMapping = 'm'
	kindKey     = 'k'
	kindPurge   = 'z'
	kindBinding = 'b'
	kindExpiry  = 'e'
	kindBond    = 'n'
	kindPart    = 't'
	kindReceipt = 'r'
)

const inoKeyLen = 1 + 8

// slotBits is the number of bits of a cookie that distinguish names of one hash; lastSlot is
// the highest slot.
const (
	slotBits = 8
	lastSlot = 1<<slotBits - 1
)

func appendKey(b []byte, kind byte, numbers ...uint64) []byte {
	b = append(b, kind)
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// keyNumber returns a number in a key, of which 0 is the first; 0 if the key is too short.
func keyNumber(key []byte, i int) uint64 {
	at := 1 + 8*i
	if len(key) < at+8 {
		return 0
	}
	return binary.BigEndian.Uint64(key[at:])
}

// keyIno returns the inode number that follows the kind; 0 if the key is too short.
func keyIno(key []byte) Ino { return Ino(keyNumber(key, 0)) }
