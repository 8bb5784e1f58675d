package region

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// RegisterSpan registers what an engine can copy, whatever it is made of: what
// Register, RegisterDevice and RegisterFile do for their kinds.
//
// It is for memory that is lent for one transfer: a file's own pages may be on
// their way to a peer until it has answered. A program that revokes the key before, and
// writes the file, may send what it writes. Only ever bytes of this file are
// sent, however it is cut.
//
// Errors: devices.ErrUnsupported for a remote span, and those of the others.
func (t *Table) RegisterSpan(s transport.Span) (*Buffer, error) {
	p := s.Place()
	switch {
	case p.Remote != nil:
		return nil, fmt.Errorf("register remote memory: %w", devices.ErrUnsupported)
	case p.Device.Mem != nil:
		return t.RegisterDevice(p.Device)
	case p.File != nil:
		b, err := t.RegisterFile(p.Name, p.File, p.Off, s.Len())
		if err == nil {
			b.lent = true
		}
		return b, err
	}
	return t.Register(p.Host)
}
