package metadata

import (
	"encoding/binary"
	"math/bits"
)

// hashKey is the key of the hash of names. It is secret to the store, so that an attacker
// can't choose names that collide.
type hashKey [16]byte

// sipState is the state of SipHash-2-4.
type sipState struct{ v0, v1, v2, v3 uint64 }

func (s *sipState) round() {
	s.v0 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 13) ^ s.v0
	s.v0 = bits.RotateLeft64(s.v0, 32)
	s.v2 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 16) ^ s.v2
	s.v0 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 21) ^ s.v0
	s.v2 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 17) ^ s.v2
	s.v2 = bits.RotateLeft64(s.v2, 32)
}

func (s *sipState) block(m uint64) {
	s.v3 ^= m
	s.round()
	s.round()
	s.v0 ^= m
}

// sum returns SipHash-2-4 of name: a keyed hash whose collisions cannot be found without
// the key, and that is the same in every process, unlike hash/maphash.
func (k *hashKey) sum(name string) uint64 {
	k0 := binary.LittleEndian.Uint64(k[:8])
	k1 := binary.LittleEndian.Uint64(k[8:])
	s := sipState{
		v0: k0 ^ 0x736f6d6570736575, v1: k1 ^ 0x646f72616e646f6d,
		v2: k0 ^ 0x6c7967656e657261, v3: k1 ^ 0x7465646279746573,
	}
	last := uint64(len(name)) << 56
	for ; len(name) >= 8; name = name[8:] {
		var m uint64
		for i := range 8 {
			m |= uint64(name[i]) << (8 * i)
		}
		s.block(m)
	}
	for i := range len(name) {
		last |= uint64(name[i]) << (8 * i)
	}
	s.block(last)
	s.v2 ^= 0xff
	for range 4 {
		s.round()
	}
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}
