package share

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
)

// The limits of a text. A larger text is refused before memory is allocated for it.
const (
	// MaxPieces bounds the pieces of an object.
	MaxPieces = 4096
	// MaxText is the maximum size of a text, in bytes.
	MaxText = 1 << 20
	// maxHandle is the maximum length of a vendor's handle, in bytes; CUDA's has 64, Ascend's
	// key 65.
	maxHandle = 1024
	// maxPath is the longest path that the kernel accepts.
	maxPath = 4095
	// maxWord bounds names, dtypes, shapes and UUIDs.
	maxWord = 4096
	// maxSize is the maximum size of an object.
	maxSize = 1<<63 - 1
)

// Parse parses the text form, in which a size of 0 stands for the sum of the pieces, and checks
// it as Validate does. Unknown fields are refused, so that a misspelt one is not silently
// ignored.
//
// Errors: devices.ErrHandle.
func Parse(text []byte) (Memory, error) {
	if len(text) > MaxText {
		return Memory{}, fmt.Errorf("shared memory: text of %d bytes, the maximum is %d: %w", len(text), MaxText, devices.ErrHandle)
	}
	var m Memory
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return Memory{}, fmt.Errorf("shared memory: not a handle in JSON: %w: %w", err, devices.ErrHandle)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Memory{}, fmt.Errorf("shared memory: extra text after the JSON: %w", devices.ErrHandle)
	}
	if m.Size == 0 {
		m.Size = m.sum()
	}
	if err := m.Validate(); err != nil {
		return Memory{}, err
	}
	return m, nil
}

// String returns the text form. Parse is its inverse.
func (m Memory) String() string {
	text, err := json.Marshal(m)
	if err != nil { // impossible: all values of the type can be encoded
		return fmt.Sprintf("shared memory of %s: %v", m.Family, err)
	}
	return string(text)
}

// sum returns the total length of the pieces, or 0 if it exceeds the maximum size of an object.
func (m Memory) sum() devices.Size {
	var sum devices.Size
	for i := range m.Pieces {
		if m.Pieces[i].Size > maxSize-sum {
			return 0
		}
		sum += m.Pieces[i].Size
	}
	return sum
}

// Validate reports every fault of the fields, as far as they can be checked without accessing
// the memory.
//
// Errors: devices.ErrHandle.
func (m Memory) Validate() error {
	var faults []error
	add := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("shared memory: "+format, args...))
	}
	if m.Family == "" || len(m.Family) > maxWord {
		add(`"family" must name the kind of device, such as host, sim or cuda`)
	}
	if m.PID < 0 {
		add(`invalid "pid" %d`, m.PID)
	}
	for name, value := range map[string]string{"device": m.Device, "dtype": m.Dtype, "shape": m.Shape} {
		if len(value) > maxWord {
			add("%q has %d bytes, the maximum is %d", name, len(value), maxWord)
		}
	}
	switch {
	case len(m.Pieces) == 0:
		add(`"pieces" is missing`)
	case len(m.Pieces) > MaxPieces:
		add("%d pieces, the maximum is %d", len(m.Pieces), MaxPieces)
	case m.sum() == 0:
		add("the sizes of the pieces add up to 0, or to more than the maximum size of a file")
	case m.sum() != m.Size:
		add(`"size" is %d, but the pieces add up to %d; omit or correct it`, m.Size, m.sum())
	}
	for i := range m.Pieces[:min(len(m.Pieces), MaxPieces)] {
		if err := m.Pieces[i].check(); err != nil {
			add("piece %d: %w", i, err)
		}
		if len(faults) > 8 { // further errors would be similar
			break
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %w", errors.Join(faults...), devices.ErrHandle)
	}
	return nil
}

// check checks one piece on its own.
func (p *Piece) check() error {
	if p.Size == 0 {
		return errors.New(`"size" is missing; give the number of bytes of the memory`)
	}
	if p.Size > maxSize || p.Offset > maxSize || devices.Size(p.Offset) > maxSize-p.Size {
		return fmt.Errorf("%d bytes at offset %d are out of range", p.Size, p.Offset)
	}
	if p.Allocation != 0 && devices.Size(p.Offset)+p.Size > p.Allocation {
		return fmt.Errorf("%d bytes at offset %d end beyond the allocation of %d", p.Size, p.Offset, p.Allocation)
	}
	switch p.Kind {
	case devices.HandleIPC:
		return p.checkBytes()
	case devices.HandleVMM, devices.HandleMemfd:
		return p.checkDescriptor()
	}
	return fmt.Errorf("unknown kind %q; use %s, %s or %s", p.Kind,
		devices.HandleIPC, devices.HandleVMM, devices.HandleMemfd)
}

func (p *Piece) checkBytes() error {
	if p.FD != nil || p.Path != "" {
		return fmt.Errorf(`kind %s requires "handle", without "fd" and "path"`, p.Kind)
	}
	if len(p.Handle) == 0 || len(p.Handle) > 2*maxHandle {
		return fmt.Errorf(`"handle" has %d digits; it must have 2 to %d`, len(p.Handle), 2*maxHandle)
	}
	if _, err := hex.DecodeString(p.Handle); err != nil {
		return fmt.Errorf(`"handle": %w`, err)
	}
	return nil
}

func (p *Piece) checkDescriptor() error {
	switch {
	case p.Handle != "":
		return fmt.Errorf(`kind %s requires "fd" or "path", without "handle"`, p.Kind)
	case p.FD == nil && p.Path == "":
		return fmt.Errorf(`kind %s requires "fd" or "path"`, p.Kind)
	case p.FD != nil && *p.FD < 0:
		return fmt.Errorf(`invalid "fd" %d`, *p.FD)
	case p.Path == "":
		return nil
	case !filepath.IsAbs(p.Path):
		return fmt.Errorf(`"path" %q is not absolute`, p.Path)
	case len(p.Path) > maxPath || strings.ContainsRune(p.Path, 0):
		return fmt.Errorf(`"path" of %d bytes is too long, or contains a zero byte`, len(p.Path))
	}
	return nil
}
