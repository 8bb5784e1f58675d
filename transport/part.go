package transport

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// Part returns the n bytes of the span from off.
func (s Span) Part(off devices.Offset, n devices.Size) (Span, error) {
	if r := (devices.Range{Off: off, Len: n}); !r.Within(s.n) {
		return Span{}, fmt.Errorf("range %v exceeds a span of %d bytes: %w", r, uint64(s.n), devices.ErrRange)
	}
	out := s
	out.n = n
	switch {
	case s.remote != nil:
		out.remoteOff = s.remoteOff + off
	case s.dev.Mem != nil:
		out.dev = devices.Span{Mem: s.dev.Mem, Range: devices.Range{Off: s.dev.Off + off, Len: n}}
	case s.file != nil:
		out.off = s.off + int64(off)
	default:
		out.host = s.host[off : uint64(off)+uint64(n)]
	}
	return out, nil
}
