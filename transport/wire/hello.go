package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The sizes of the handshake's bodies, in bytes.
const (
	// NonceSize is the size of the random nonce with which each side makes a
	// handshake unique.
	NonceSize = 32
	// ProofSize is the size of an HMAC-SHA256.
	ProofSize = 32

	helloSize     = 8 + 4 + 4 + 8 + 8 + 4 + 4 + NonceSize
	challengeSize = 4 + 4 + 8 + NonceSize
	welcomeSize   = 8 + 8 + ProofSize
	refusalSize   = 2
	maxReason     = 512
)

// envelope is the size, in bytes, of a Noise message without the body of its
// payload. The payload is a whole frame: see docs/wire.md.
const envelope = 32 + 16 + HeaderSize

// appendFields appends the fields of a struct of fixed size, and parseFields
// parses them. Neither fails: the sizes are right.
func appendFields(p []byte, fields any) []byte {
	p, _ = binary.Append(p, binary.LittleEndian, fields)
	return p
}

func parseFields(p []byte, fields any) { _, _ = binary.Decode(p, binary.LittleEndian, fields) }

// magic starts every HELLO.
const magic = "hmcfs\x00cm"

// Role is the purpose of a connection.
type Role uint8

// The roles of a connection.
const (
	// RoleControl carries tags and messages, and opens the session.
	RoleControl Role = 1
	// RoleData carries puts and gets of a session.
	RoleData Role = 2
	// RoleSide carries offers of memory that the peer may access directly.
	RoleSide Role = 3
	// RoleStream carries bytes of a package that is built on the communicator, in
	// a session that exists already.
	RoleStream Role = 4
)

// Cover is the protection of a connection after its handshake.
type Cover uint8

// The kinds of protection.
const (
	// CoverTLS is TLS, with the certificates of both sides.
	CoverTLS Cover = 1
	// CoverSecret is encryption by the secret that both sides share.
	CoverSecret Cover = 2
	// CoverPlain is no encryption, since both sides were configured so.
	CoverPlain Cover = 3
	// CoverLocal is no encryption, on a Unix socket, which does not leave the
	// machine.
	CoverLocal Cover = 4
)

// String names the protection as users do.
func (c Cover) String() string {
	return nameOf(c, "cover", []string{
		CoverTLS: "tls", CoverSecret: "secret", CoverPlain: "plain", CoverLocal: "local",
	})
}

// Encrypts reports whether the protection keeps third parties from reading and
// changing the traffic.
func (c Cover) Encrypts() bool { return c == CoverTLS || c == CoverSecret }

func (c Cover) valid() bool { return c >= CoverTLS && c <= CoverLocal }

// MaxChannels is the maximum number of data connections of one session.
const MaxChannels = 16

// Hello is the first frame, sent by the connecting side. The fields have the order
// of the frame, in which they follow magic.
type Hello struct {
	// From is the rank that connects, To the rank that it addresses.
	From, To Rank
	Epoch    Epoch
	// Session is 0 on a control connection, which opens one; other connections
	// name the session that they join.
	Session Session
	Role    Role
	// Channel is, on a control connection, the number of data connections that
	// will follow, and on a data connection its index, from 0. It is 0 on a side
	// connection and on a stream.
	Channel uint8
	// Cover is the protection that the sender requires for this connection. Both
	// sides must require the same.
	Cover Cover
	_     uint8
	// Chunk is the maximum payload of one data frame that the sender accepts, in
	// bytes; on a data connection it is that of the session.
	Chunk uint32
	Nonce [NonceSize]byte
}

// Append appends the frame.
func (h *Hello) Append(p []byte) []byte {
	p = Header{Kind: KindHello, Length: helloSize}.Append(p)
	return appendFields(append(p, magic...), h)
}

// ParseHello parses the body of a HELLO.
func ParseHello(body []byte) (Hello, error) {
	var h Hello
	if len(body) != helloSize || !bytes.HasPrefix(body, []byte(magic)) {
		return h, fmt.Errorf("HELLO of %d bytes: %w", len(body), ErrFrame)
	}
	parseFields(body[len(magic):], &h)
	if body[35] != 0 || !h.valid() {
		return Hello{}, fmt.Errorf("invalid HELLO of %s as role %d, session %x, channel %d, chunk %d: %w",
			h.From, h.Role, uint64(h.Session), h.Channel, h.Chunk, ErrFrame)
	}
	return h, nil
}

// valid reports whether the fields are consistent.
func (h *Hello) valid() bool {
	if h.Epoch == 0 || h.Chunk < MinChunk || h.Chunk > MaxChunk || !h.Cover.valid() {
		return false
	}
	switch h.Role {
	case RoleControl:
		return h.Session == 0 && h.Channel >= 1 && h.Channel <= MaxChannels
	case RoleData:
		return h.Session != 0 && h.Channel < MaxChannels
	case RoleSide, RoleStream:
		return h.Session != 0 && h.Channel == 0
	}
	return false
}

// Challenge is the answer to a HELLO: the rank that was reached, and a nonce that
// makes every proof valid for this connection only. The fields have the order of
// the frame.
type Challenge struct {
	From Rank
	// Cover is as in Hello.
	Cover Cover
	_     [3]byte
	Epoch Epoch
	Nonce [NonceSize]byte
}

// Append appends the frame.
func (c *Challenge) Append(p []byte) []byte {
	return appendFields(Header{Kind: KindChallenge, Length: challengeSize}.Append(p), c)
}

// ParseChallenge parses the body of a CHALLENGE.
func ParseChallenge(body []byte) (Challenge, error) {
	var c Challenge
	if len(body) != challengeSize || [3]byte(body[5:8]) != [3]byte{} {
		return c, fmt.Errorf("CHALLENGE of %d bytes: %w", len(body), ErrFrame)
	}
	parseFields(body, &c)
	if c.Epoch == 0 || !c.Cover.valid() {
		return Challenge{}, fmt.Errorf("invalid CHALLENGE of %s with epoch %d, cover %d: %w", c.From, uint64(c.Epoch), c.Cover, ErrFrame)
	}
	return c, nil
}

// Proof proves that its sender knows the secret.
type Proof [ProofSize]byte

// Append appends the frame of a client's proof.
func (m *Proof) Append(p []byte) []byte {
	p = Header{Kind: KindProof, Length: ProofSize}.Append(p)
	return append(p, m[:]...)
}

// ParseProof parses the body of a PROOF.
func ParseProof(body []byte) (Proof, error) {
	if len(body) != ProofSize {
		return Proof{}, fmt.Errorf("PROOF of %d bytes: %w", len(body), ErrFrame)
	}
	return Proof(body), nil
}

// Welcome ends the handshake. The fields have the order of the frame.
type Welcome struct {
	Session Session
	// Chunk is the maximum payload of one data frame, for both sides, in bytes.
	Chunk uint32
	_     uint32
	Proof Proof
}

// Append appends the frame.
func (w *Welcome) Append(p []byte) []byte {
	return appendFields(Header{Kind: KindWelcome, Length: welcomeSize}.Append(p), w)
}

// ParseWelcome parses the body of a WELCOME.
func ParseWelcome(body []byte) (Welcome, error) {
	var w Welcome
	if len(body) != welcomeSize || binary.LittleEndian.Uint32(body[12:]) != 0 {
		return w, fmt.Errorf("WELCOME of %d bytes: %w", len(body), ErrFrame)
	}
	parseFields(body, &w)
	if w.Session == 0 || w.Chunk < MinChunk || w.Chunk > MaxChunk {
		return Welcome{}, fmt.Errorf("invalid WELCOME with chunk %d: %w", w.Chunk, ErrFrame)
	}
	return w, nil
}

// RefusalCode is the reason why an authenticated rank is refused.
type RefusalCode uint16

// The reasons of a refusal.
const (
	// RefusedTaken reports a rank that is connected already.
	RefusedTaken RefusalCode = 1
	// RefusedSession reports a data connection of a session that does not exist.
	RefusedSession RefusalCode = 2
	// RefusedClosing reports a peer that is about to end.
	RefusedClosing RefusalCode = 3
	// RefusedCrossing reports a peer that connects to us at the same time, and
	// whose connection is the one that stays.
	RefusedCrossing RefusalCode = 4
)

// Refusal is sent in place of a WELCOME.
type Refusal struct {
	Code RefusalCode
	// Reason is for people; more than 512 bytes are truncated.
	Reason string
}

// Append appends the frame.
func (r *Refusal) Append(p []byte) []byte {
	reason := cutReason(r.Reason)
	p = Header{Kind: KindRefusal, Length: uint32(refusalSize + len(reason))}.Append(p)
	p = binary.LittleEndian.AppendUint16(p, uint16(r.Code))
	return append(p, reason...)
}

// cutReason truncates a text for people to at most maxReason bytes of UTF-8.
func cutReason(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// ParseRefusal parses the body of a REFUSAL.
func ParseRefusal(body []byte) (Refusal, error) {
	if len(body) < refusalSize || len(body) > refusalSize+maxReason || !utf8.Valid(body[refusalSize:]) {
		return Refusal{}, fmt.Errorf("REFUSAL of %d bytes: %w", len(body), ErrFrame)
	}
	return Refusal{Code: RefusalCode(binary.LittleEndian.Uint16(body)), Reason: string(body[refusalSize:])}, nil
}
