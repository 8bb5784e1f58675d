package wire

import (
	"encoding/binary"
	"fmt"
)

// The bounds of the payload of one data frame, in bytes. Larger transfers use
// several frames.
const (
	MinChunk = 4 << 10
	MaxChunk = 64 << 20
)

// Status is the result of an operation at its target.
type Status uint16

// The results of an operation.
const (
	StatusOK Status = 0
	// StatusKey reports a key that names nothing: never granted, revoked, or of a
	// session that has ended.
	StatusKey Status = 1
	// StatusRights reports a key that does not allow the operation.
	StatusRights Status = 2
	// StatusRange reports bytes outside the region.
	StatusRange Status = 3
	// StatusDevice reports a failure of the target's device.
	StatusDevice Status = 4
)

// String describes the result.
func (s Status) String() string {
	return nameOf(s, "status", []string{
		StatusOK: "done", StatusKey: "unknown or revoked key", StatusRights: "the key does not allow this",
		StatusRange: "range outside the region", StatusDevice: "the device failed",
	})
}

// DataHeaderSize is the size of a DataHeader, in bytes.
const DataHeaderSize = 32

// DataHeader starts every frame of a data connection.
type DataHeader struct {
	Kind Kind
	// Status is 0 except in Ack and Data.
	Status Status
	// Length is the number of bytes that follow in a Put or a Data, and the
	// number that a Get requests; 0 in an Ack, and in a Data whose Status is not
	// OK.
	Length uint32
	ID     RequestID
	// Key and Off are the place at the target; 0 in Ack and Data.
	Key Key
	Off uint64
}

// Encode writes the header to the first DataHeaderSize bytes of p.
func (h *DataHeader) Encode(p []byte) {
	_ = p[DataHeaderSize-1]
	p[0], p[1] = byte(h.Kind), Version
	binary.LittleEndian.PutUint16(p[2:], uint16(h.Status))
	binary.LittleEndian.PutUint32(p[4:], h.Length)
	binary.LittleEndian.PutUint64(p[8:], uint64(h.ID))
	binary.LittleEndian.PutUint64(p[16:], uint64(h.Key))
	binary.LittleEndian.PutUint64(p[24:], h.Off)
}

// Decode reads the header from the first DataHeaderSize bytes of p. chunk is the
// maximum payload that the session allows.
func (h *DataHeader) Decode(p []byte, chunk uint32) error {
	if len(p) < DataHeaderSize {
		return fmt.Errorf("data header of %d bytes: %w", len(p), ErrFrame)
	}
	*h = DataHeader{
		Kind:   Kind(p[0]),
		Status: Status(binary.LittleEndian.Uint16(p[2:])),
		Length: binary.LittleEndian.Uint32(p[4:]),
		ID:     RequestID(binary.LittleEndian.Uint64(p[8:])),
		Key:    Key(binary.LittleEndian.Uint64(p[16:])),
		Off:    binary.LittleEndian.Uint64(p[24:]),
	}
	if !h.known() {
		return fmt.Errorf("data header % x: %w", p[:DataHeaderSize], ErrFrame)
	}
	if p[1] != Version {
		return fmt.Errorf("%s of version %d, but this side has version %d: %w", h.Kind, p[1], Version, ErrVersion)
	}
	if h.Length > chunk || !h.consistent() {
		return fmt.Errorf("%s of %d bytes with status %d is inconsistent or longer than %d: %w", h.Kind, h.Length, h.Status, chunk, ErrFrame)
	}
	return nil
}

func (h *DataHeader) known() bool { return h.Kind >= KindPut && h.Kind <= KindData }

// consistent reports whether the fields are valid for the kind.
func (h *DataHeader) consistent() bool {
	switch h.Kind {
	case KindPut, KindGet:
		return h.Status == StatusOK && h.Length > 0
	case KindAck:
		return h.Length == 0 && h.Key == 0 && h.Off == 0 && h.Status <= StatusDevice
	case KindData:
		return (h.Status == StatusOK) == (h.Length > 0) && h.Key == 0 && h.Off == 0 && h.Status <= StatusDevice
	default:
		return false
	}
}

// DescriptorSize is the size of a Descriptor, in bytes.
const DescriptorSize = 24

// Descriptor holds the information that a peer needs to use a region. The fields
// have the order of the frame.
type Descriptor struct {
	Key  Key
	Size uint64
	// Rights are those of the key. The target checks them again.
	Rights Rights
}

// Append appends the descriptor, to be sent in a message.
func (d Descriptor) Append(p []byte) []byte {
	p = binary.LittleEndian.AppendUint64(p, uint64(d.Key))
	p = binary.LittleEndian.AppendUint64(p, d.Size)
	return append(p, byte(d.Rights), Version, 0, 0, 0, 0, 0, 0)
}

// ParseDescriptor parses a descriptor that a peer has sent.
func ParseDescriptor(p []byte) (Descriptor, error) {
	if len(p) != DescriptorSize {
		return Descriptor{}, fmt.Errorf("descriptor of %d bytes: %w", len(p), ErrFrame)
	}
	if p[17] != Version {
		return Descriptor{}, fmt.Errorf("descriptor of version %d, but this side has version %d: %w", p[17], Version, ErrVersion)
	}
	d := Descriptor{
		Key:    Key(binary.LittleEndian.Uint64(p)),
		Size:   binary.LittleEndian.Uint64(p[8:]),
		Rights: Rights(p[16]),
	}
	if !d.valid() || [6]byte(p[18:]) != [6]byte{} {
		return Descriptor{}, fmt.Errorf("descriptor % x: %w", p, ErrFrame)
	}
	return d, nil
}

// valid reports whether the fields are in their bounds.
func (d *Descriptor) valid() bool {
	return d.Key != 0 && d.Size <= 1<<63-1 && d.Rights != 0 && d.Rights <= Readable|Writable
}
