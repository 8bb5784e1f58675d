package wire

import (
	"encoding/binary"
	"fmt"
)

// Version is the version of the protocol that this package speaks.
const Version = 2

// Kind is the type of a frame.
type Kind uint8

// The kinds of frames, in the order in which a connection sees them.
const (
	KindHello     Kind = 1
	KindChallenge Kind = 2
	KindProof     Kind = 3
	KindWelcome   Kind = 4
	KindRefusal   Kind = 5
	KindProposal  Kind = 6
	KindChoice    Kind = 7

	KindTag     Kind = 16
	KindMessage Kind = 17
	KindBye     Kind = 18
	KindPacket  Kind = 19

	KindPut  Kind = 32
	KindAck  Kind = 33
	KindGet  Kind = 34
	KindData Kind = 35

	KindStart     Kind = 48
	KindOffer     Kind = 49
	KindAccept    Kind = 50
	KindDecline   Kind = 51
	KindWithdraw  Kind = 52
	KindWithdrawn Kind = 53
)

// String names the kind as docs/wire.md does.
func (k Kind) String() string {
	return nameOf(k, "kind", []string{
		KindHello: "HELLO", KindChallenge: "CHALLENGE", KindProof: "PROOF", KindWelcome: "WELCOME",
		KindRefusal: "REFUSAL", KindProposal: "PROPOSAL", KindChoice: "CHOICE",
		KindTag: "TAG", KindMessage: "MESSAGE", KindBye: "BYE", KindPacket: "PACKET",
		KindPut: "PUT", KindAck: "ACK", KindGet: "GET", KindData: "DATA",
		KindStart: "START", KindOffer: "OFFER", KindAccept: "ACCEPT", KindDecline: "DECLINE",
		KindWithdraw: "WITHDRAW", KindWithdrawn: "WITHDRAWN",
	})
}

// HeaderSize is the size of a Header, in bytes.
const HeaderSize = 8

// MaxMessage is the maximum size of one message, in bytes.
const MaxMessage = 64 << 10

// MaxPacket is the maximum size of one packet, in bytes, without its port.
const MaxPacket = 64 << 10

// PacketHeaderSize is the number of bytes before the contents of a packet.
const PacketHeaderSize = HeaderSize + portSize

// portSize is the size of a packet's port, in bytes.
const portSize = 4

// Header starts every frame except those of data connections.
type Header struct {
	Kind   Kind
	Length uint32
}

// lengths returns the minimum and maximum size, in bytes, of a kind's body.
func (k Kind) lengths() (least, most uint32, known bool) {
	switch k {
	case KindHello:
		return helloSize, helloSize + envelope, true
	case KindChallenge:
		return challengeSize, challengeSize + envelope, true
	case KindProof:
		return ProofSize, ProofSize, true
	case KindWelcome:
		return welcomeSize, welcomeSize, true
	case KindRefusal:
		return refusalSize, refusalSize + maxReason, true
	case KindTag:
		return tagSize, tagSize, true
	case KindMessage:
		return 0, MaxMessage, true
	case KindBye:
		return 0, 0, true
	case KindProposal, KindChoice:
		return 0, maxWays, true
	case KindStart:
		return startSize, startSize + MaxStart, true
	case KindOffer:
		return offerSize, offerSize + MaxOffer, true
	case KindDecline:
		return keySize, keySize + maxReason, true
	case KindAccept, KindWithdraw, KindWithdrawn:
		return keySize, keySize, true
	case KindPacket:
		return portSize, portSize + MaxPacket, true
	default:
		return 0, 0, false
	}
}

// Append appends the header's bytes.
func (h Header) Append(p []byte) []byte {
	p = append(p, byte(h.Kind), Version, 0, 0)
	return binary.LittleEndian.AppendUint32(p, h.Length)
}

// ParseHeader parses a header from the first HeaderSize bytes of p, and rejects a
// kind that has no such header and a length that is invalid for the kind.
func ParseHeader(p []byte) (Header, error) {
	if len(p) < HeaderSize {
		return Header{}, fmt.Errorf("header of %d bytes: %w", len(p), ErrFrame)
	}
	h := Header{Kind: Kind(p[0]), Length: binary.LittleEndian.Uint32(p[4:])}
	least, most, known := h.Kind.lengths()
	switch {
	case !known || p[2] != 0 || p[3] != 0:
		return Header{}, fmt.Errorf("header % x: %w", p[:HeaderSize], ErrFrame)
	case p[1] != Version:
		return Header{}, fmt.Errorf("%s of version %d, but this side has version %d: %w", h.Kind, p[1], Version, ErrVersion)
	case h.Length < least || h.Length > most:
		return Header{}, fmt.Errorf("%s of %d bytes; must have %d to %d: %w", h.Kind, h.Length, least, most, ErrFrame)
	}
	return h, nil
}

// tagSize is the size of a tag's body, in bytes.
const tagSize = 8

// TagFrameSize is the size of a whole tag frame, in bytes.
const TagFrameSize = HeaderSize + tagSize

// AppendTag appends a tag with its header.
func AppendTag(p []byte, t Tag) []byte {
	p = Header{Kind: KindTag, Length: tagSize}.Append(p)
	return binary.LittleEndian.AppendUint64(p, uint64(t))
}

// ParseTag parses the body of a tag.
func ParseTag(body []byte) (Tag, error) {
	if len(body) != tagSize {
		return 0, fmt.Errorf("tag of %d bytes: %w", len(body), ErrFrame)
	}
	return Tag(binary.LittleEndian.Uint64(body)), nil
}

// AppendPacket appends the header of a packet of n bytes.
func AppendPacket(p []byte, port Port, n int) []byte {
	p = Header{Kind: KindPacket, Length: uint32(portSize + n)}.Append(p)
	return binary.LittleEndian.AppendUint32(p, uint32(port))
}

// ParsePacket parses the body of a packet; the returned bytes are part of the
// body.
func ParsePacket(body []byte) (Port, []byte, error) {
	if len(body) < portSize || len(body) > portSize+MaxPacket {
		return 0, nil, fmt.Errorf("packet of %d bytes: %w", len(body), ErrFrame)
	}
	port := Port(binary.LittleEndian.Uint32(body))
	if port == 0 {
		return 0, nil, fmt.Errorf("packet without a port: %w", ErrFrame)
	}
	return port, body[portSize:], nil
}
