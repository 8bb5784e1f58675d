package region

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// RegisterSpan registers what an engine can copy, whatever it is made of: what
// Register, RegisterDevice and RegisterFile do for their kinds.
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
		return t.RegisterFile(p.Name, p.File, p.Off, s.Len())
	}
	return t.Register(p.Host)
}
