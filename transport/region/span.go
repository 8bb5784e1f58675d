package region

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// RegisterSpan registers any span that an engine can copy, as Register,
// RegisterDevice and RegisterFile do for their kinds.
//
// It is for memory that is borrowed for one transfer: a file's own pages may be
// in transit to a peer until the peer has answered. If a program revokes the key
// before that, and writes the file, the new bytes may be sent. Only bytes of this
// file are ever sent, however it is truncated.
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
			b.borrowed = true
		}
		return b, err
	}
	return t.Register(p.Host)
}
