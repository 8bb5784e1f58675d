package wire

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// The bounds of what goes over a side connection.
const (
	// MaxOffer is the most bytes of a provider in an offer of memory.
	MaxOffer = 4 << 10
	// MaxStart is the most bytes of a provider in its first frame.
	MaxStart = 16 << 10
	// MaxFiles is the most descriptors that go with one frame.
	MaxFiles = 8

	startSize = 8
	offerSize = 8 + 8 + 8
	keySize   = 8
)

// Start is the first frame of a side connection, from either side: what a
// provider tells the one of the peer.
type Start struct {
	// Files is the number of descriptors that come with the frame.
	Files uint8
	Blob  []byte
}

// Append appends the frame.
func (s *Start) Append(p []byte) []byte {
	p = Header{Kind: KindStart, Length: uint32(startSize + len(s.Blob))}.Append(p)
	p = append(p, s.Files, 0, 0, 0, 0, 0, 0, 0)
	return append(p, s.Blob...)
}

// ParseStart reads the body of a START.
func ParseStart(body []byte) (Start, error) {
	if len(body) < startSize || len(body) > startSize+MaxStart || body[0] > MaxFiles || [7]byte(body[1:]) != [7]byte{} {
		return Start{}, fmt.Errorf("START of %d bytes: %w", len(body), ErrFrame)
	}
	return Start{Files: body[0], Blob: body[startSize:]}, nil
}

// Offer says how a peer can open the region of a key by itself.
type Offer struct {
	Descriptor

	// Files is the number of descriptors that come with the frame.
	Files uint8
	// Blob means something to the provider alone.
	Blob []byte
}

// Append appends the frame.
func (o *Offer) Append(p []byte) []byte {
	p = Header{Kind: KindOffer, Length: uint32(offerSize + len(o.Blob))}.Append(p)
	p = binary.LittleEndian.AppendUint64(p, uint64(o.Key))
	p = binary.LittleEndian.AppendUint64(p, o.Size)
	p = append(p, byte(o.Rights), o.Files, 0, 0, 0, 0, 0, 0)
	return append(p, o.Blob...)
}

// ParseOffer reads the body of an OFFER.
func ParseOffer(body []byte) (Offer, error) {
	if len(body) < offerSize || len(body) > offerSize+MaxOffer {
		return Offer{}, fmt.Errorf("OFFER of %d bytes: %w", len(body), ErrFrame)
	}
	o := Offer{
		Descriptor: Descriptor{
			Key:    Key(binary.LittleEndian.Uint64(body)),
			Size:   binary.LittleEndian.Uint64(body[8:]),
			Rights: Rights(body[16]),
		},
		Files: body[17],
		Blob:  body[offerSize:],
	}
	if !o.valid() || o.Size == 0 || o.Files > MaxFiles || [6]byte(body[18:]) != [6]byte{} {
		return Offer{}, fmt.Errorf("OFFER % x: %w", body[:offerSize], ErrFrame)
	}
	return o, nil
}

// AppendKey appends a frame that says one thing of one key: KindAccept,
// KindWithdraw or KindWithdrawn.
func AppendKey(p []byte, kind Kind, key Key) []byte {
	p = Header{Kind: kind, Length: keySize}.Append(p)
	return binary.LittleEndian.AppendUint64(p, uint64(key))
}

// ParseKey reads the body of a frame of AppendKey.
func ParseKey(body []byte) (Key, error) {
	if len(body) != keySize {
		return 0, fmt.Errorf("key in %d bytes: %w", len(body), ErrFrame)
	}
	return Key(binary.LittleEndian.Uint64(body)), nil
}

// Decline answers an offer that can't be used. The key is good on the data
// connections all the same.
type Decline struct {
	Key Key
	// Reason is for a person; what is longer than 512 bytes is cut.
	Reason string
}

// Append appends the frame.
func (d *Decline) Append(p []byte) []byte {
	reason := cutReason(d.Reason)
	p = Header{Kind: KindDecline, Length: uint32(keySize + len(reason))}.Append(p)
	p = binary.LittleEndian.AppendUint64(p, uint64(d.Key))
	return append(p, reason...)
}

// ParseDecline reads the body of a DECLINE.
func ParseDecline(body []byte) (Decline, error) {
	if len(body) < keySize || len(body) > keySize+maxReason || !utf8.Valid(body[keySize:]) {
		return Decline{}, fmt.Errorf("DECLINE of %d bytes: %w", len(body), ErrFrame)
	}
	return Decline{Key: Key(binary.LittleEndian.Uint64(body)), Reason: string(body[keySize:])}, nil
}
