package objects

import (
	"context"

	"github.com/hmcfs/hmcfs/transport"
)

// CopyOut copies the content from off on to dst, which may be memory of
// another machine, and returns how many bytes: fewer than dst has room for only
// at the end, or when the context ends after some. Holes are copied as zeros.
func (f *File) CopyOut(ctx context.Context, off uint64, dst transport.Span) (uint64, error) {
	_, _, _ = ctx, off, dst
	return 0, ErrUnsupported
}

// CopyIn is WriteAt from any span, also of another machine.
func (f *File) CopyIn(ctx context.Context, src transport.Span, w Write) (uint64, error) {
	_, _, _ = ctx, src, w
	return 0, ErrUnsupported
}
