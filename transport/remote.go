package transport

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// Remote is memory of another machine, or process, that can be part of a span.
// Its methods may be called from any goroutine. They return when the bytes are in
// place or nothing accesses dst or src any more, even if the context has ended
// before.
type Remote interface {
	// Fetch fills dst, which is memory of this process, with the remote bytes
	// from off, and reports the path. With an error it is the path that was
	// tried, or empty.
	Fetch(ctx context.Context, dst Span, off devices.Offset) (Path, error)
	// Store copies src, which is memory of this process, to the remote memory
	// at off.
	Store(ctx context.Context, src Span, off devices.Offset) (Path, error)
}

// DirectWriter is a Remote for which some calls of Fetch let the other machine write
// into dst directly. This process can't verify that the bytes reported as written
// are there.
type DirectWriter interface {
	Remote
	// WritesDirectly reports whether a Fetch of n bytes may do so.
	WritesDirectly(n devices.Size) bool
}

// WritesDirectly reports whether a copy from the span may let another machine write into
// the destination: memory that holds bytes of something else is cleared before
// that.
func (s Span) WritesDirectly() bool {
	l, ok := s.remote.(DirectWriter)
	return ok && l.WritesDirectly(s.n)
}

// RemoteSpan returns the span of n bytes from off of remote memory. Engine.Copy
// moves between it and any span of this process; a copy between two remote ends
// is ErrUnsupported, and so is Fill.
func RemoteSpan(r Remote, off devices.Offset, n devices.Size) Span {
	return Span{remote: r, remoteOff: off, n: n}
}

// withRemote performs a copy with one remote end: that end moves the bytes.
func withRemote(ctx context.Context, dst, src Span) (Path, error) {
	var path Path
	var err error
	switch {
	case dst.remote == nil:
		path, err = src.remote.Fetch(ctx, dst, src.remoteOff)
	case src.remote == nil:
		path, err = dst.remote.Store(ctx, src, dst.remoteOff)
	default:
		err = fmt.Errorf("copy from one remote memory to another: %w", devices.ErrUnsupported)
	}
	if path == "" {
		path = PathTCP
	}
	return path, err
}
