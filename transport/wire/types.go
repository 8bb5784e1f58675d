package wire

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
)

// Rank identifies a process of a job, from 0.
type Rank uint32

// String returns the rank as messages show it: "rank 3".
func (r Rank) String() string { return fmt.Sprintf("rank %d", uint32(r)) }

// Epoch identifies one connection of a rank: each that a process makes has a
// larger epoch than the previous one. 0 is none.
type Epoch uint64

// Session identifies a control connection and its channels. It is random; 0 is
// none.
type Session uint64

// Tag is a number that one rank sends to another.
type Tag uint64

// Port identifies a package that exchanges packets of its own on the control
// connection, separate from the tags and messages of the user. 0 is none.
type Port uint32

// The ports.
const (
	// PortDomain is the port of transport/domain.
	PortDomain Port = 1
	// PortRPC is the port of transport/rpc.
	PortRPC Port = 2
	// PortFabric is the port of transport/collective/fabric.
	PortFabric Port = 3
)

// Key is the right to use a region, for one peer and one session. It is
// random; 0 is none.
type Key uint64

// Random returns a random number other than 0: a Key, a Session, or another name
// that must not be guessed.
func Random() uint64 {
	for {
		var p [8]byte
		// It never fails: the runtime ends the process if the kernel has no random
		// bytes.
		_, _ = rand.Read(p[:])
		if n := binary.LittleEndian.Uint64(p[:]); n != 0 {
			return n
		}
	}
}

// RequestID identifies one operation until it is answered. It is valid on one
// channel only.
type RequestID uint64

// Rights are the rights of a key.
type Rights uint8

// The rights of a key.
const (
	Readable Rights = 1 << iota
	Writable
)

// Allows reports whether all of need is granted.
func (r Rights) Allows(need Rights) bool { return r&need == need }

// String lists the rights: "read,write".
func (r Rights) String() string {
	var names []string
	if r.Allows(Readable) {
		names = append(names, "read")
	}
	if r.Allows(Writable) {
		names = append(names, "write")
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}
