package transport

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
)

// Remote is memory of another machine, or process, that spans may lie in. Its
// methods may be called from any goroutine, and return when the bytes are in
// place or nothing touches dst or src any more.
type Remote interface {
	// Fetch fills dst, which is memory of this process, with the remote bytes
	// from off on, and says by which way.
	Fetch(ctx context.Context, dst Span, off devices.Offset) (Path, error)
	// Store copies src, which is memory of this process, to the remote memory
	// at off.
	Store(ctx context.Context, src Span, off devices.Offset) (Path, error)
}

// RemoteSpan is n bytes from off of remote memory. Engine.Copy moves between it
// and any span of this process; two remote ends are ErrUnsupported, and so is
// Fill.
func RemoteSpan(r Remote, off devices.Offset, n devices.Size) Span {
	return Span{remote: r, off: int64(off), n: n}
}
