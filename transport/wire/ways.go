package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Transport names a transport for the bytes of puts and gets.
type Transport uint8

// The transports, the fastest first: the choice follows this order.
const (
	TransportRDMA Transport = 1
	TransportSHM  Transport = 2
	TransportUCX  Transport = 3
	TransportTCP  Transport = 4
)

// String names the transport as users do.
func (t Transport) String() string {
	return nameOf(t, "transport", []string{
		TransportRDMA: "rdma", TransportSHM: "shm", TransportUCX: "ucx", TransportTCP: "tcp",
	})
}

// MaxFacts is the maximum size, in bytes, of a proposal's data for one transport.
const MaxFacts = maxReason

const (
	wayHead = 1 + 1 + 2
	maxWays = 4 * (wayHead + MaxFacts)
)

// Way is one side's statement about a transport.
type Way struct {
	Transport Transport
	// Usable means, in a proposal, that the sender can use it, and in a choice
	// that it is chosen.
	Usable bool
	// Facts holds, for a usable transport, the data that the peer needs for its
	// decision (at most MaxFacts bytes, interpreted only by the transport);
	// otherwise it is the reason, for people.
	Facts []byte
}

// Ways is a list of transports, each at most once and the fastest first. It is a
// proposal, from the connecting side, or a choice, from the listening side.
type Ways []Way

// Append appends the list as a frame: KindProposal or KindChoice. Reasons longer
// than MaxFacts are truncated.
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

// ParseWays parses the body of a PROPOSAL or of a CHOICE.
func ParseWays(body []byte) (Ways, error) {
	var out Ways
	var last Transport
	for len(body) > 0 {
		if len(body) < wayHead {
			return nil, fmt.Errorf("transport entry of %d bytes: %w", len(body), ErrFrame)
		}
		w := Way{Transport: Transport(body[0]), Usable: body[1] == 1}
		n := int(binary.LittleEndian.Uint16(body[2:]))
		known := w.Transport > last && w.Transport <= TransportTCP && body[1] <= 1
		if !known || n > MaxFacts || n > len(body)-wayHead {
			return nil, fmt.Errorf("malformed transport entry % x: %w", body[:wayHead], ErrFrame)
		}
		w.Facts = body[wayHead : wayHead+n]
		if !w.Usable && !utf8.Valid(w.Facts) {
			return nil, fmt.Errorf("the reason against %s is not valid UTF-8: %w", w.Transport, ErrFrame)
		}
		out, last, body = append(out, w), w.Transport, body[wayHead+n:]
	}
	return out, nil
}

// Find returns the list's entry for a transport; ok is false if there is none.
func (w Ways) Find(t Transport) (way Way, ok bool) {
	if i := slices.IndexFunc(w, func(way Way) bool { return way.Transport == t }); i >= 0 {
		return w[i], true
	}
	return Way{}, false
}
