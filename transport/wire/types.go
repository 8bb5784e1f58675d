package wire

import (
	"fmt"
	"strings"
)

// Rank names a process of a job, from 0.
type Rank uint32

// String writes the rank as messages do: "rank 3".
func (r Rank) String() string { return fmt.Sprintf("rank %d", uint32(r)) }

// Epoch is one connection of a rank: each that a process makes has a larger
// one than the last. 0 is none.
type Epoch uint64

// Session names what one control connection and its channels belong to. It
// is random; 0 is none.
type Session uint64

// Tag is a word of one rank to another.
type Tag uint64

// Port names a package that has packets of its own on the control connection,
// apart from the tags and messages of the user. 0 is none.
type Port uint32

// The ports.
const (
	// PortDomain is transport/domain's.
	PortDomain Port = 1
	// PortRPC is transport/rpc's.
	PortRPC Port = 2
	// PortFabric is transport/collective/fabric's.
	PortFabric Port = 3
)

// Key is the right to use a region, for one peer and one session. It is
// random; 0 is none.
type Key uint64

// RequestID names one operation between its frame and the answer. It means
// something on one channel only.
type RequestID uint64

// Rights are those of a key.
type Rights uint8

// The rights of a key.
const (
	Readable Rights = 1 << iota
	Writable
)

// Allows says whether all of need is given.
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
