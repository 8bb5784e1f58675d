package metadata

import (
	"encoding/binary"

	"github.com/dchest/siphash"
)

// hashKey is the key of the hash of names. It is secret to the store, so that an attacker
// can't choose names that collide.
type hashKey [16]byte

// sum returns SipHash-2-4 of name: a keyed hash whose collisions cannot be found without
// the key, and that is the same in every process, unlike hash/maphash.
func (k *hashKey) sum(name string) uint64 {
	var buf [MaxName]byte // on the stack, unlike a conversion of a long name
	return siphash.Hash(binary.LittleEndian.Uint64(k[:8]), binary.LittleEndian.Uint64(k[8:]), append(buf[:0], name...))
}
