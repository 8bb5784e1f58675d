package wire

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// The bounds of the frames of a side connection.
const (
	// MaxOffer is the maximum size, in bytes, of a provider's data in an offer of
	// memory.
	MaxOffer = 4 << 10
	// MaxStart is the maximum size, in bytes, of a provider's data in its first
	// frame.
	MaxStart = 16 << 10
	// MaxFiles is the maximum number of descriptors that accompany one frame.
	MaxFiles = 8

	startSize = 8
	offerSize = 8 + 8 + 8
	keySize   = 8
)

// Start is the first frame of a side connection, from either side: a provider's
// data for the provider of the peer.
type Start struct {
	// Files is the number of descriptors that accompany the frame.
	Files uint8
	Blob  []byte
}

// Append appends the frame.
func (s *Start) Append(p []byte) []byte {
	p = Header{Kind: KindStart, Length: uint32(startSize + len(s.Blob))}.Append(p)
	p = append(p, s.Files, 0, 0, 0, 0, 0, 0, 0)
	return append(p, s.Blob...)
}

// ParseStart parses the body of a START.
func ParseStart(body []byte) (Start, error) {
	if len(body) < startSize || len(body) > startSize+MaxStart || body[0] > MaxFiles || [7]byte(body[1:]) != [7]byte{} {
		return Start{}, fmt.Errorf("START of %d bytes: %w", len(body), ErrFrame)
	}
	return Start{Files: body[0], Blob: body[startSize:]}, nil
}

// Offer describes how a peer can open the region of a key directly.
type Offer struct {
	Descriptor

	// Files is the number of descriptors that accompany the frame.
	Files uint8
	// Blob is interpreted only by the provider.
	Blob []byte
}

// Append appends the frame.
func (o *Offer) Append(p []byte) []byte {
	p = Header{Kind: KindOffer, Length: uint32(offerSize + len(o.Blob))}.Append(p)
	p = append(appendFields(p, o.Descriptor), o.Files, 0, 0, 0, 0, 0, 0)
	return append(p, o.Blob...)
}

// ParseOffer parses the body of an OFFER.
func ParseOffer(body []byte) (Offer, error) {
	if len(body) < offerSize || len(body) > offerSize+MaxOffer {
		return Offer{}, fmt.Errorf("OFFER of %d bytes: %w", len(body), ErrFrame)
	}
	o := Offer{Files: body[17], Blob: body[offerSize:]}
	parseFields(body, &o.Descriptor)
	if !o.valid() || o.Size == 0 || o.Files > MaxFiles || [6]byte(body[18:]) != [6]byte{} {
		return Offer{}, fmt.Errorf("malformed OFFER % x: %w", body[:offerSize], ErrFrame)
	}
	return o, nil
}

// AppendKey appends a frame that carries only a key: KindAccept, KindWithdraw or
// KindWithdrawn.
func AppendKey(p []byte, kind Kind, key Key) []byte {
	p = Header{Kind: kind, Length: keySize}.Append(p)
	return binary.LittleEndian.AppendUint64(p, uint64(key))
}

// ParseKey parses the body of a frame of AppendKey.
func ParseKey(body []byte) (Key, error) {
	if len(body) != keySize {
		return 0, fmt.Errorf("key of %d bytes: %w", len(body), ErrFrame)
	}
	return Key(binary.LittleEndian.Uint64(body)), nil
}

// Decline answers an offer that can't be used. The key still works on the data
// connections.
type Decline struct {
	Key Key
	// Reason is for people; more than 512 bytes are truncated.
	Reason string
}

// Append appends the frame.
func (d *Decline) Append(p []byte) []byte {
	reason := cutReason(d.Reason)
	p = Header{Kind: KindDecline, Length: uint32(keySize + len(reason))}.Append(p)
	p = binary.LittleEndian.AppendUint64(p, uint64(d.Key))
	return append(p, reason...)
}

// ParseDecline parses the body of a DECLINE.
func ParseDecline(body []byte) (Decline, error) {
	if len(body) < keySize || len(body) > keySize+maxReason || !utf8.Valid(body[keySize:]) {
		return Decline{}, fmt.Errorf("DECLINE of %d bytes: %w", len(body), ErrFrame)
	}
	return Decline{Key: Key(binary.LittleEndian.Uint64(body)), Reason: string(body[keySize:])}, nil
}
