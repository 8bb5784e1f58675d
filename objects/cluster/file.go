package cluster

import (
	"context"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/transport"
)

// Access is what a file is opened for.
type Access uint32

// The accesses, to be combined.
const (
	Read  Access = 1
	Write Access = 2
)

// File is an open file of another node. Its methods may be called from any
// goroutine. It is opened again by itself when the session broke and the same
// incarnation is back; calls under way then have failed, but for reads, which
// are tried once more.
type File struct{}

// Open opens a regular file.
func (n *Node) Open(context.Context, Cred, objects.Ino, Access) (*File, error) {
	return nil, ErrUnreachable
}

// Node is whose file it is.
func (f *File) Node() *Node { return nil }

// Ino is its number there.
func (f *File) Ino() objects.Ino { return 0 }

// Size is its size as last heard.
func (f *File) Size() uint64 { return 0 }

// Version changes when anybody is known to have changed the content: what was
// read between two equal versions may be used together.
func (f *File) Version() uint64 { return 0 }

// Peek reads into p, fewer bytes only at the end.
func (f *File) Peek(context.Context, []byte, uint64) (int, error) { return 0, ErrUnreachable }

// WriteAt writes, as objects.File.WriteAt.
func (f *File) WriteAt(context.Context, []byte, objects.Write) (int, error) {
	return 0, ErrUnreachable
}

// Span is a range of the file for Engine.Copy, which then reads or writes it.
func (f *File) Span(off, n uint64) transport.Span { return transport.Span{} }

// Allocate is fallocate(2).
func (f *File) Allocate(ctx context.Context, mode objects.AllocateMode, off, n uint64) error {
	_, _, _, _ = ctx, mode, off, n
	return ErrUnreachable
}

// Seek finds data or a hole.
func (f *File) Seek(context.Context, uint64, objects.Whence) (uint64, error) {
	return 0, ErrUnreachable
}

// Sync has the owner write its record.
func (f *File) Sync(context.Context) error { return ErrUnreachable }

// Close ends the handle.
func (f *File) Close(context.Context) error { return nil }
