package devices

import (
	"context"
	"os"
)

// DescriptorStore keeps descriptors for the process that follows this one: memory behind a
// descriptor lives as long as any process has it. It is safe for concurrent use.
type DescriptorStore interface {
	// Keep stores a duplicate of the descriptor under name, instead of one that was there.
	Keep(name string, f *os.File) error
	// Kept returns duplicates of all descriptors whose names begin with prefix. The caller
	// closes them.
	Kept(prefix string) (map[string]*os.File, error)
	// Drop releases the descriptor under name; one that is not there is no error.
	Drop(name string) error
}

// Lasting is the ability of a device whose memory is the host's own to allocate it in
// files. Such memory outlives the process if a DescriptorStore has the file.
type Lasting interface {
	// AllocIn allocates memory that consists of the first n bytes of f, which nothing may
	// truncate, with the content that they have. It does not retain f. It fails with
	// ErrUnsupported if the device can't use memory of the host in place.
	AllocIn(ctx context.Context, f *os.File, n Size) (*Memory, error)
	// Resume continues an epoch of an earlier process, whose memory still exists. It is
	// called before the first allocation, and fails with ErrUnsupported as AllocIn does.
	Resume(e Epoch) error
}

// LastingOf returns the ability of a device to allocate memory in files; ok is false for a
// device whose memory ends with the process.
func LastingOf(d Device) (l Lasting, ok bool) {
	l, ok = d.(Lasting)
	return l, ok
}
