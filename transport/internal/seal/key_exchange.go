package seal

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"

	"github.com/flynn/noise"
)

// ErrHandshake reports a handshake message that was made without the secret, or
// for another prologue.
var ErrHandshake = errors.New("seal: the message was not made with this secret")

const (
	// KeySize is the size of a Key, in bytes.
	KeySize = 32
	// HandshakeOverhead is the size, in bytes, of a handshake message beyond its
	// payload: a public key and a tag.
	HandshakeOverhead = 32 + tagSize
)

// Key is derived from a secret for one purpose.
type Key [KeySize]byte

// NewKey derives the key of a secret for one use: HKDF-SHA256 without a salt,
// with the use as the info. Keys for different uses reveal nothing about each
// other, nor about the secret.
func NewKey(secret []byte, use string) Key {
	key, err := hkdf.Key(sha256.New, secret, nil, use, KeySize)
	if err != nil {
		panic(fmt.Errorf("seal: HKDF of %d bytes: %w", KeySize, err)) // it can only be too long
	}
	return Key(key)
}

// Handshake is one side's part of the handshake: the connecting side writes and
// then reads, the listening side reads and then writes.
type Handshake struct {
	state     *noise.HandshakeState
	initiator bool
	// send and receive are nil until the handshake is complete.
	send, receive *noise.CipherState
}

// NewHandshake starts a handshake. Both sides must have the same key and
// prologue; the prologue is not sent.
func NewHandshake(key Key, prologue string, initiator bool) (*Handshake, error) {
	state, err := noise.NewHandshakeState(noise.Config{
		CipherSuite: noise.NewCipherSuite(noise.DH25519, noise.CipherAESGCM, noise.HashSHA256),
		Pattern:     noise.HandshakeNN, Initiator: initiator, Prologue: []byte(prologue), PresharedKey: key[:],
	})
	if err != nil {
		return nil, fmt.Errorf("start the handshake: %w", err)
	}
	return &Handshake{state: state, initiator: initiator}, nil
}

// Write returns this side's message, which carries a payload.
func (h *Handshake) Write(payload []byte) ([]byte, error) {
	message, one, two, err := h.state.WriteMessage(nil, payload)
	if err != nil {
		return nil, fmt.Errorf("encode a message of the handshake: %w", err)
	}
	h.split(one, two)
	return message, nil
}

// Read returns the payload of the other side's message.
func (h *Handshake) Read(message []byte) ([]byte, error) {
	payload, one, two, err := h.state.ReadMessage(nil, message)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	h.split(one, two)
	return payload, nil
}

// split stores the keys of both directions, which Noise returns at the end: the
// first is that of the connecting side.
func (h *Handshake) split(one, two *noise.CipherState) {
	h.send, h.receive = one, two
	if !h.initiator {
		h.send, h.receive = two, one
	}
}

// Conn returns the connection that follows a complete handshake. It owns raw.
// Until Ahead it reads no byte more than it needs.
func (h *Handshake) Conn(raw net.Conn) (*Conn, error) {
	if h.send == nil || h.receive == nil {
		return nil, errors.New("seal: the handshake is not complete")
	}
	return newConn(raw, h.send.UnsafeKey(), h.receive.UnsafeKey())
}
