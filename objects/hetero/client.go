package hetero

import (
	"context"
	"time"
)

// Client is one user of heterogeneous objects: it owns the memory that it has registered, and
// the objects that it has set and published from it. Package local creates clients in the
// daemon's process, and package client everywhere else. Its methods may be called from any
// goroutine.
//
// All calls have in common: keys and lists have the same length, from 1 to MaxKeys, without
// duplicate keys; every key, list and option is checked before anything moves, and a fault in
// one of them is ErrInvalid for the whole call, without results. After that each key succeeds
// or fails on its own. The error returned with results is Results.Outcome: nil if at least one
// key succeeded.
type Client interface {
	Registry
	HandOver
	DeviceObjects
	HostObjects
	Directory
	// Close ends the client: its publications that have not been received are withdrawn, the
	// objects that it has set are lost unless a replica of another client takes over, and its
	// memory is released. Calls in progress end with ErrClosed.
	Close() error
}

// Registry manages the memory that a client may name in its calls.
type Registry interface {
	// PreRegister registers memory. Few large pieces are better than many small ones.
	//
	// Errors: ErrInvalid; ErrNotAuthorized for memory or a file that is not the caller's;
	// ErrUnsupported if the device does not support it.
	PreRegister(ctx context.Context, m Memory) (MemoryID, error)
	// Unregister releases memory. Objects still set or published from it are lost, as when the
	// client ends.
	//
	// Errors: ErrNotFound.
	Unregister(ctx context.Context, id MemoryID) error
}

// HandOver passes memory from one client to another, once.
type HandOver interface {
	// DevPublish offers blobs under keys, each to one subscriber. No bytes are moved. A future
	// completes when the subscriber has all bytes, or with ErrWithdrawn; a key that can't be
	// published has a future that is already complete, and the error is not nil if no key can
	// be published. Publishing a key again with the same blobs returns the same hand-over,
	// with other blobs it is ErrInconsistent; a key of another client is ErrExist.
	//
	// Memory that is a file of the mount cannot be published this way, ErrUnsupported:
	// rename(2) the file to publish/KEY.
	DevPublish(ctx context.Context, keys []string, lists []DeviceBlobList) ([]*Future, error)
	// DevSubscribe receives published keys into blobs of the same number and sizes, in the
	// background; the end of ctx cancels it. A future completes when the bytes have arrived;
	// it is ErrTimeout when the key was not published in time, ErrShape, or ErrOwnerGone when
	// the publisher ended during the transfer. Subscribing again to a key that this client is
	// waiting for returns the same future if the blobs are the same, and is ErrInconsistent
	// otherwise.
	DevSubscribe(ctx context.Context, keys []string, lists []DeviceBlobList, o SubscribeOptions) ([]*Future, error)
	// DevClaim reserves a publication for this client, which then reads it with DevFetch and
	// ends the reservation with DevSettle. No other client can receive it in the meantime. It
	// is offered again when the client ends, or after ClaimIdle without a DevFetch.
	//
	// Errors: ErrTimeout; ErrBusy while another client has reserved it;
	// ErrInconsistent while this one has.
	DevClaim(ctx context.Context, key string, o ClaimOptions) (MetaInfo, error)
	// DevFetch copies bytes of a reserved publication into the one blob of a
	// list, from the list's SourceOffset on.
	//
	// Errors: ErrNotFound without a reservation; ErrShape; ErrOwnerGone when the
	// publisher has ended.
	DevFetch(ctx context.Context, key string, to DeviceBlobList) error
	// DevSettle ends a reservation: the publication is either received, or offered again
	// unchanged. If it is received, a target in the mount loses its time to live.
	//
	// Errors: ErrNotFound when the reservation has ended, so that the publication is not
	// received; ErrDisconnected when its node does not answer, and it is unknown whether the
	// publication was received.
	DevSettle(ctx context.Context, key string, received bool) error
}

// DeviceObjects manages keys that name memory of a client, which can be read many times.
type DeviceObjects interface {
	// DevMSet binds keys to blobs. No bytes are moved: the memory remains the client's, which
	// must not change it before deleting the keys. Setting a key again with the same blobs
	// succeeds, with others it is ErrInconsistent; a key that another client has set is
	// ErrExist. A lost object is replaced. Blobs of a file of the mount must be all of its
	// bytes in order, and the file gets the key.
	DevMSet(ctx context.Context, keys []string, lists []DeviceBlobList) (Results, error)
	// DevMGet copies the bytes of keys, however they were set, into blobs: as many as the key
	// has, each no longer than the part of its source after SourceOffset.
	//
	// Errors by key: ErrNotFound, ErrShape with both shapes, ErrLost.
	DevMGet(ctx context.Context, keys []string, lists []DeviceBlobList, o GetOptions) (Results, error)
	// DevDelete removes keys with all their replicas. The owners' bytes are unchanged. A read
	// in progress completes with the bytes that it requested. A missing key is a success.
	DevDelete(ctx context.Context, keys []string) (Results, error)
	// DevLocalDelete removes this client's part of keys: its replica, or the object that it
	// has set; a replica of another client then takes over if there is one.
	DevLocalDelete(ctx context.Context, keys []string) (Results, error)
	// AsyncDevDelete is DevDelete in the background; the end of ctx cancels it.
	AsyncDevDelete(ctx context.Context, keys []string) (*Batch, error)
}

// HostObjects manages copies in host memory.
type HostObjects interface {
	// MSetD2H gathers the blobs of each key into one object in host memory. The file contains
	// only the bytes of the blobs; their sizes are in user.hmc.blobs. An object is not visible
	// before it is complete.
	MSetD2H(ctx context.Context, keys []string, lists []DeviceBlobList, o SetOptions) (Results, error)
	// MGetH2D scatters objects into blobs of the same number and exact sizes.
	MGetH2D(ctx context.Context, keys []string, lists []DeviceBlobList, o GetOptions) (Results, error)
	// AsyncMSetD2H is MSetD2H in the background. The descriptors are copied before it returns;
	// the memory must not change until the batch is done. The end of ctx cancels it. More than
	// MaxBackgroundKeys keys or MaxBackgroundCalls calls in the background are ErrBusy.
	AsyncMSetD2H(ctx context.Context, keys []string, lists []DeviceBlobList, o SetOptions) (*Batch, error)
	// AsyncMGetH2D is MGetH2D in the background.
	AsyncMGetH2D(ctx context.Context, keys []string, lists []DeviceBlobList, o GetOptions) (*Batch, error)
	// Delete is DevDelete: all keys are in one namespace.
	Delete(ctx context.Context, keys []string) (Results, error)
}

// Directory answers questions about keys, and changes their times to live.
type Directory interface {
	// Exist reports for each key whether it names an object whose bytes are available.
	Exist(ctx context.Context, keys []string) ([]bool, error)
	// GetMetaInfo returns the blobs of keys; with published set, those of publications. The
	// error is ErrNotFound if none of the keys exists.
	GetMetaInfo(ctx context.Context, keys []string, published bool) ([]MetaInfo, error)
	// GenerateKey returns prefix, or if it is empty a unique random key.
	//
	// Errors: ErrInvalid.
	GenerateKey(prefix string) (string, error)
	// Expire sets the time to live of keys, starting now, in whole seconds; 0 means forever.
	Expire(ctx context.Context, keys []string, ttl time.Duration) (Results, error)
	// Each calls came once for each key, with its index: with nil as soon as the key names an
	// object whose bytes are available or, with published set, as soon as it is published;
	// with ErrTimeout when the time ends before. Calls of came do not overlap, and all have
	// returned when Each returns. The error is that of a whole call that is refused; came is
	// then not called.
	Each(ctx context.Context, keys []string, published bool, timeout time.Duration, came func(i int, err error)) error
	// Wait returns the outcome that Each reports for each key, once all have been reported.
	Wait(ctx context.Context, keys []string, published bool, timeout time.Duration) (Results, error)
}
