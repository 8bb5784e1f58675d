package wire

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Transport names a way for the bytes of puts and gets.
type Transport uint8

// The transports, the fastest first: a choice goes by this order.
const (
	TransportRDMA Transport = 1
	TransportSHM  Transport = 2
	TransportUCX  Transport = 3
	TransportTCP  Transport = 4
)

// String names the transport as users do.
func (t Transport) String() string {
	switch t {
	case TransportRDMA:
		return "rdma"
	case TransportSHM:
		return "shm"
	case TransportUCX:
		return "ucx"
	case TransportTCP:
		return "tcp"
	}
	return fmt.Sprintf("transport %d", uint8(t))
}

// MaxFacts is the most bytes that a proposal says of one transport.
const MaxFacts = maxReason

const (
	wayHead = 1 + 1 + 2
	maxWays = 4 * (wayHead + MaxFacts)
)

// Way is one side's statement about a transport.
type Way struct {
	Transport Transport
	// Usable says, in a proposal, that the sender can use it, and in a choice
	// that it is the one.
	Usable bool
	// Facts are, of a usable one, what the peer needs to judge (at most MaxFacts
	// bytes, which mean something to the transport alone); of another one they
	// are why not, for a person.
	Facts []byte
}

// Ways is a list of transports, each at most once and the fastest first. It is
// a proposal, from who connects, or a choice, from who listens.
type Ways []Way

// Append appends the list as a frame: KindProposal or KindChoice. Longer texts
// than MaxFacts are cut.
func (w Ways) Append(p []byte, kind Kind) []byte {
	var body []byte
	for _, way := range w {
		facts := way.Facts
		usable := byte(1)
		if !way.Usable {
			facts, usable = []byte(cutReason(string(facts))), 0
		}
		body = append(body, byte(way.Transport), usable)
		body = binary.LittleEndian.AppendUint16(body, uint16(len(facts)))
		body = append(body, facts...)
	}
	p = Header{Kind: kind, Length: uint32(len(body))}.Append(p)
	return append(p, body...)
}

// ParseWays reads the body of a PROPOSAL or of a CHOICE.
func ParseWays(body []byte) (Ways, error) {
	var out Ways
	var last Transport
	for len(body) > 0 {
		if len(body) < wayHead {
			return nil, fmt.Errorf("transport in %d bytes: %w", len(body), ErrFrame)
		}
		w := Way{Transport: Transport(body[0]), Usable: body[1] == 1}
		n := int(binary.LittleEndian.Uint16(body[2:]))
		known := w.Transport > last && w.Transport <= TransportTCP && body[1] <= 1
		if !known || n > MaxFacts || n > len(body)-wayHead {
			return nil, fmt.Errorf("transport % x: %w", body[:wayHead], ErrFrame)
		}
		w.Facts = body[wayHead : wayHead+n]
		if !w.Usable && !utf8.Valid(w.Facts) {
			return nil, fmt.Errorf("reason against %s that is no text: %w", w.Transport, ErrFrame)
		}
		out, last, body = append(out, w), w.Transport, body[wayHead+n:]
	}
	return out, nil
}

// Find returns what the list says of a transport; ok is false where it says
// nothing.
func (w Ways) Find(t Transport) (way Way, ok bool) {
	for _, way := range w {
		if way.Transport == t {
			return way, true
		}
	}
	return Way{}, false
}
