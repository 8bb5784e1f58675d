package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// how is the method by which the peer opens memory.
type how uint8

const (
	// byMap is a sealed file, to be mapped.
	byMap how = 1
	// byCall is a file that may be truncated: it is read and written by system
	// calls.
	byCall how = 2
	// byIPC and byVMM are handles of a device's memory.
	byIPC how = 3
	byVMM how = 4
	// byLent is a borrowed file: as byCall, but writing past its end extends it.
	byLent how = 5
)

// place is the blob of an offer:
//
//	0   1   2   3           8               16              24
//	┌───┬───┬───┬───────────┬───────────────┬───────────────┬───────┬────────┐
//	│how│len│len│     0     │ offset        │ allocation    │ UUID …│handle …│
//	└───┴───┴───┴───────────┴───────────────┴───────────────┴───────┴────────┘
type place struct {
	how how
	// off is the offset at which the memory begins in its file or allocation.
	off uint64
	// The following fields are used by handles.
	allocation   uint64
	uuid, handle string
}

const (
	placeHead = 24
	// maxText is the maximum size, in bytes, of a UUID and of a handle.
	maxText = 255
)

func (p *place) encode() []byte {
	out := append([]byte(nil), byte(p.how), byte(len(p.uuid)), byte(len(p.handle)), 0, 0, 0, 0, 0)
	out = binary.LittleEndian.AppendUint64(out, p.off)
	out = binary.LittleEndian.AppendUint64(out, p.allocation)
	return append(append(out, p.uuid...), p.handle...)
}

func parsePlace(p []byte) (place, error) {
	if len(p) < placeHead || len(p) != placeHead+int(p[1])+int(p[2]) || [5]byte(p[3:]) != [5]byte{} {
		return place{}, fmt.Errorf("malformed memory description of %d bytes: %w", len(p), wire.ErrFrame)
	}
	middle := placeHead + int(p[1])
	out := place{
		how: how(p[0]), off: binary.LittleEndian.Uint64(p[8:]), allocation: binary.LittleEndian.Uint64(p[16:]),
		uuid: string(p[placeHead:middle]), handle: string(p[middle:]),
	}
	handle := out.how == byIPC || out.how == byVMM
	if out.how < byMap || out.how > byLent || !handle && (out.allocation != 0 || len(p) != placeHead) {
		return place{}, fmt.Errorf("malformed memory description % x: %w", p[:placeHead], wire.ErrFrame)
	}
	return out, nil
}

// exported is a buffer that was offered to the peer. It is held.
type exported struct {
	buffer *region.Buffer
	offer  window.Offer
	// own is a descriptor that was made for the offer; nil if the descriptor
	// belongs to the buffer.
	own *os.File
}

// Offer returns the offer by which the peer opens the memory.
func (x *exported) Offer() window.Offer { return x.offer }

// Close releases the buffer.
func (x *exported) Close() error {
	x.buffer.Drop()
	if x.own == nil {
		return nil
	}
	return x.own.Close()
}

// export describes the memory of a buffer, which is held.
func export(b *region.Buffer, rights wire.Rights) (*exported, error) {
	src := b.Source()
	switch {
	case src.File != nil:
		x := &exported{buffer: b}
		at := place{how: byCall, off: src.Off}
		switch {
		case src.Sealed:
			at.how = byMap
		case src.Borrowed:
			at.how = byLent
		}
		file, err := x.restrict(src.File, rights)
		x.offer = window.Offer{Blob: at.encode(), Files: []*os.File{file}}
		return x, err
	case src.Device.Mem != nil:
		return exportDevice(b, src.Device, rights)
	}
	return nil, fmt.Errorf("the memory is private to this process: %w", devices.ErrUnsupported)
}

// restrict returns a descriptor limited to the rights, as far as descriptors
// allow: mapping needs reading.
func (x *exported) restrict(f *os.File, rights wire.Rights) (*os.File, error) {
	if rights.Allows(wire.Writable) {
		return f, nil
	}
	err := descriptor.UsePath(f, func(path string) (err error) {
		x.own, err = os.Open(path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open memory read-only: %w", err)
	}
	return x.own, nil
}

// exportDevice describes device memory by a handle of its device.
func exportDevice(b *region.Buffer, s devices.Span, rights wire.Rights) (*exported, error) {
	h, err := devices.Export(context.Background(), s.Mem)
	if err != nil {
		return nil, err
	}
	x := &exported{buffer: b, own: h.File}
	at := place{off: uint64(h.Offset) + uint64(s.Off), allocation: uint64(h.Allocation), uuid: h.Device, handle: string(h.Bytes)}
	if h.File != nil {
		x.offer.Files = []*os.File{h.File}
	}
	switch h.Kind {
	case devices.HandleMemfd:
		at = place{how: byMap, off: at.off}
		var file *os.File
		if file, err = x.restrict(h.File, rights); err == nil && file != h.File {
			x.offer.Files = []*os.File{file}
			err = h.File.Close()
		}
	case devices.HandleIPC:
		at.how = byIPC
	case devices.HandleVMM:
		at.how = byVMM
	default:
		err = fmt.Errorf("unsupported handle kind %s: %w", h.Kind, devices.ErrUnsupported)
	}
	if len(at.uuid) > maxText || len(at.handle) > maxText {
		err = errors.Join(err, fmt.Errorf("a device handle or UUID is too long, handle of %d bytes: %w", len(at.handle), devices.ErrUnsupported))
	}
	if err != nil {
		if x.own != nil {
			err = errors.Join(err, x.own.Close())
		}
		return nil, err
	}
	x.offer.Blob = at.encode()
	return x, nil
}
