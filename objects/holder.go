package objects

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
)

// Holder is one user of keyed objects: what it has registered, set and
// published is its own, and goes when it ends. Its methods may be called from
// any goroutine.
type Holder struct {
	store *Store
	who   Caller
}

// NewHolder begins a holder for a user. Close ends it.
func (s *Store) NewHolder(who Caller) *Holder { return &Holder{store: s, who: who} }

// Close withdraws what the holder has published and nobody is receiving, makes
// what it has set lost unless a replica takes over, and lets its regions go.
// Operations under way end with ErrLost. It is called once.
func (h *Holder) Close(ctx context.Context) error { return notBuilt(ctx) }

// Region is memory that a holder has registered: of another process, of this
// one, or the content of a file of the store.
type Region struct{}

// Register makes memory of another process known. r is what Bind takes.
//
// Errors: those of Bind that concern the memory.
func (h *Holder) Register(ctx context.Context, device devices.Name, r BindRequest) (*Region, error) {
	return nil, notBuilt(ctx)
}

// Adopt makes memory of a device of this process known, and retains it.
//
// Errors: ErrInvalid for memory that is not of the device.
func (h *Holder) Adopt(ctx context.Context, device devices.Name, m *devices.Memory) (*Region, error) {
	return nil, notBuilt(ctx)
}

// RegisterFile makes the content of a regular file known, as long as it is now.
// The caller may read and write it, which the region does as a handle would;
// it does not keep the file open between transfers.
//
// Errors: ErrForbidden; ErrInvalid.
func (h *Holder) RegisterFile(ctx context.Context, ino Ino) (*Region, error) {
	return nil, notBuilt(ctx)
}

// Device is the device that the memory is on, and Size how much it is in bytes.
func (r *Region) Device() devices.Name { return "" }

// Size is how much memory it is, in bytes.
func (r *Region) Size() uint64 { return 0 }

// Close lets the memory go, for this holder's further calls at once. What is
// set or published out of it is lost. It is called once.
func (r *Region) Close(ctx context.Context) error { return notBuilt(ctx) }

// Blob is a stretch of a region.
type Blob struct {
	Region   *Region
	Off, Len uint64
}

// notBuilt stands where code is to come.
func notBuilt(context.Context) error { return ErrUnsupported }
