package transport

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// Remote is memory of another machine, or process, that spans may lie in. Its
// methods may be called from any goroutine, and return when the bytes are in
// place or nothing touches dst or src any more, also where the context has
// ended before.
type Remote interface {
	// Fetch fills dst, which is memory of this process, with the remote bytes
	// from off on, and says by which way. With an error the way is the one that
	// was tried, or empty.
	Fetch(ctx context.Context, dst Span, off devices.Offset) (Path, error)
	// Store copies src, which is memory of this process, to the remote memory
	// at off.
	Store(ctx context.Context, src Span, off devices.Offset) (Path, error)
}

// Lender is a Remote of which some Fetch lends dst to the other machine, which
// puts the bytes there. What it says that it has put is not known to be there.
type Lender interface {
	Remote
	// Lends reports whether a Fetch of n bytes may do so.
	Lends(n devices.Size) bool
}

// IsLent reports whether a copy from the span may lend the destination to
// another machine: memory that holds bytes of something else is cleared before
// that.
func (s Span) IsLent() bool {
	l, ok := s.remote.(Lender)
	return ok && l.Lends(s.n)
}

// RemoteSpan is n bytes from off of remote memory. Engine.Copy moves between it
// and any span of this process; two remote ends are ErrUnsupported, and so is
// Fill.
func RemoteSpan(r Remote, off devices.Offset, n devices.Size) Span {
	return Span{remote: r, remoteOff: off, n: n}
}

// withRemote is the copy of which one end is remote: that end does it.
func withRemote(ctx context.Context, dst, src Span) (Path, error) {
	var path Path
	var err error
	switch {
	case dst.remote == nil:
		path, err = src.remote.Fetch(ctx, dst, src.remoteOff)
	case src.remote == nil:
		path, err = dst.remote.Store(ctx, src, dst.remoteOff)
	default:
		err = fmt.Errorf("copy between two remote memories: %w", devices.ErrUnsupported)
	}
	if path == "" {
		path = PathTCP
	}
	return path, err
}
