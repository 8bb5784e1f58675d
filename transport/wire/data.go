package wire

import (
	"encoding/binary"
	"fmt"
)

// The bounds of the payload of one data frame, in bytes. Larger transfers are
// several frames.
const (
	MinChunk = 4 << 10
	MaxChunk = 64 << 20
)

// Status is the end of an operation at its target.
type Status uint16

// The ends of an operation.
const (
	StatusOK Status = 0
	// StatusKey is a key that names nothing: never given, revoked, or of a
	// session that has ended.
	StatusKey Status = 1
	// StatusRights is a key that does not allow this.
	StatusRights Status = 2
	// StatusRange is bytes outside of the region.
	StatusRange Status = 3
	// StatusDevice is a failure of the target's device.
	StatusDevice Status = 4
)

// String says what went wrong at the target.
func (s Status) String() string {
	switch s {
	case StatusOK:
		return "done"
	case StatusKey:
		return "unknown or revoked key"
	case StatusRights:
		return "the key does not allow this"
	case StatusRange:
		return "range outside the region"
	case StatusDevice:
		return "the device failed"
	}
	return fmt.Sprintf("status %d", uint16(s))
}

// DataHeaderSize is the bytes of a DataHeader.
const DataHeaderSize = 32

// DataHeader begins every frame of a data connection.
type DataHeader struct {
	Kind Kind
	// Status is 0 but in Ack and Data.
	Status Status
	// Length is the bytes of a Put or a Data that follow, and those that a
	// Get asks for; 0 in an Ack, and in a Data whose Status is not OK.
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

// Decode reads the header from the first DataHeaderSize bytes of p. chunk is
// the most payload that the session allows.
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
		return fmt.Errorf("%s of version %d, this is version %d: %w", h.Kind, p[1], Version, ErrVersion)
	}
	if h.Length > chunk || !h.consistent() {
		return fmt.Errorf("%s of %d bytes with status %d, at most %d are allowed: %w", h.Kind, h.Length, h.Status, chunk, ErrFrame)
	}
	return nil
}

func (h *DataHeader) known() bool { return h.Kind >= KindPut && h.Kind <= KindData }

// consistent says whether the fields are those that the kind has.
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

// DescriptorSize is the bytes of a Descriptor.
const DescriptorSize = 24

// Descriptor has what a peer has to know of a region that it may use.
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

// ParseDescriptor reads a descriptor that a peer has sent.
func ParseDescriptor(p []byte) (Descriptor, error) {
	if len(p) != DescriptorSize {
		return Descriptor{}, fmt.Errorf("descriptor of %d bytes: %w", len(p), ErrFrame)
	}
	if p[17] != Version {
		return Descriptor{}, fmt.Errorf("descriptor of version %d, this is version %d: %w", p[17], Version, ErrVersion)
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

// valid says whether the fields are in their bounds.
func (d *Descriptor) valid() bool {
	return d.Key != 0 && d.Size <= 1<<63-1 && d.Rights != 0 && d.Rights <= Readable|Writable
}
