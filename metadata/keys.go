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
)

const inoKeyLen = 1 + 8

func appendKey1(b []byte, kind byte, a uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, kind), a)
}

func appendKey2(b []byte, kind byte, a, c uint64) []byte {
	return binary.BigEndian.AppendUint64(appendKey1(b, kind, a), c)
}

func appendKey3(b []byte, kind byte, a, c, d uint64) []byte {
	return binary.BigEndian.AppendUint64(appendKey2(b, kind, a, c), d)
}

// keyIno returns the inode number that follows the kind; 0 if the key is too short.
func keyIno(key []byte) Ino {
	if len(key) < inoKeyLen {
		return 0
	}
	return Ino(binary.BigEndian.Uint64(key[1:]))
}

// keySecond returns the number that follows the inode number; 0 if there is none.
func keySecond(key []byte) uint64 {
	if len(key) < inoKeyLen+8 {
		return 0
	}
	return binary.BigEndian.Uint64(key[inoKeyLen:])
}

// keyThird returns the number after the second; 0 if there is none.
func keyThird(key []byte) uint64 {
	if len(key) < inoKeyLen+16 {
		return 0
	}
	return binary.BigEndian.Uint64(key[inoKeyLen+8:])
}
