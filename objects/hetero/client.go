package hetero

import (
	"context"
	"time"
)

// Client is one user of heterogeneous objects: it owns the memory that it has
// registered, and what it has set and published out of it. It is made by
// package local in the daemon's process and by package client everywhere else.
// Its methods may be called from any goroutine.
//
// What all calls have in common: keys and lists have the same length, from 1
// to MaxKeys, no key twice; every key, list and option is checked before
// anything moves, and a fault in one of them is ErrInvalid for the whole call,
// without results. After that each key is on its own. The error beside results
// is Results.Outcome: nil if at least one key succeeded.
type Client interface {
	Registry
	HandOver
	DeviceObjects
	HostObjects
	Directory
	// Close ends the client: what it has published and nobody has received is
	// withdrawn, what it has set is lost unless a replica of another client
	// takes over, and its memory is let go. Calls under way end with ErrClosed.
	Close() error
}

// Registry is the memory that a client may name in its calls.
type Registry interface {
	// PreRegister makes memory known. Few large pieces are better than many
	// small ones.
	//
	// Errors: ErrInvalid; ErrNotAuthorized for memory or a file that is not the
	// caller's; ErrUnsupported where the device can't.
	PreRegister(ctx context.Context, m Memory) (MemoryID, error)
	// Unregister lets memory go. What is still set or published out of it is
	// lost, as when the client ends.
	//
	// Errors: ErrNotFound.
	Unregister(ctx context.Context, id MemoryID) error
}

// HandOver gives memory from one client to another, once.
type HandOver interface {
	// DevPublish offers blobs under keys, each to one subscriber. No byte
	// moves. A future ends when the subscriber has every byte, or with
	// ErrWithdrawn; a key that can't be published has a future that has ended,
	// and the error is not nil if no key can be.
	// Publishing a key again with the same blobs returns the same hand-over,
	// with others ErrInconsistent; a key of another client is ErrExist.
	//
	// Memory that is a file of the mount is not published so, ErrUnsupported:
	// rename(2) the file to publish/KEY.
	DevPublish(ctx context.Context, keys []string, lists []DeviceBlobList) ([]*Future, error)
	// DevSubscribe receives published keys into blobs of the same number and
	// sizes, in the background; the context ends that too. A future ends when
	// the bytes are there; ErrTimeout when nobody has published in time,
	// ErrShape, ErrOwnerGone when the publisher ended in the middle. Subscribing
	// again to a key that this client is waiting for returns the same future if
	// the blobs are the same, and is ErrInconsistent for others.
	DevSubscribe(ctx context.Context, keys []string, lists []DeviceBlobList, o SubscribeOptions) ([]*Future, error)
	// DevClaim reserves a publication for this client, which then reads it with
	// DevFetch and ends the reservation with DevSettle. Nobody else receives it
	// meanwhile. The end of the client, and ClaimIdle without a DevFetch, offer
	// it again.
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
	// DevSettle ends a reservation: the publication is received, or offered
	// again as it was. A target in the mount loses its time to live with it.
	//
	// Errors: ErrNotFound when the reservation has ended, so that the publication
	// is not received; ErrDisconnected when its node does not answer, and it
	// may be received or not.
	DevSettle(ctx context.Context, key string, received bool) error
}

// DeviceObjects are keys that name memory of a client, to be read many times.
type DeviceObjects interface {
	// DevMSet binds keys to blobs. No byte moves: the memory is the client's
	// and stays unchanged until it deletes the keys. Setting a key again with
	// the same blobs succeeds, with others is ErrInconsistent; a key that
	// another has set is ErrExist. A lost object gives way. Blobs of a file of
	// the mount are all of its bytes in order, and the file gets the key.
	DevMSet(ctx context.Context, keys []string, lists []DeviceBlobList) (Results, error)
	// DevMGet copies the bytes of keys, set in any way, into blobs: as many as
	// the key has, each no longer than what its source has behind SourceOffset.
	//
	// Errors by key: ErrNotFound, ErrShape with both shapes, ErrLost.
	DevMGet(ctx context.Context, keys []string, lists []DeviceBlobList, o GetOptions) (Results, error)
	// DevDelete removes keys with all their replicas. The owners' bytes stay as
	// they are. A reader in the middle ends with the bytes it came for. A key
	// that is not there is a success.
	DevDelete(ctx context.Context, keys []string) (Results, error)
	// DevLocalDelete removes what this client has of keys: its replica, or what
	// it has set, where a replica of another client takes over if there is one.
	DevLocalDelete(ctx context.Context, keys []string) (Results, error)
	// AsyncDevDelete is DevDelete in the background; the context ends that too.
	AsyncDevDelete(ctx context.Context, keys []string) (*Batch, error)
}

// HostObjects are copies in the host's memory.
type HostObjects interface {
	// MSetD2H gathers the blobs of each key into one object in host memory. The
	// file's bytes are the blobs' and nothing else; their sizes are
	// user.hmc.blobs. Nobody sees an object before it is whole.
	MSetD2H(ctx context.Context, keys []string, lists []DeviceBlobList, o SetOptions) (Results, error)
	// MGetH2D scatters objects into blobs of the same number and exact sizes.
	MGetH2D(ctx context.Context, keys []string, lists []DeviceBlobList, o GetOptions) (Results, error)
	// AsyncMSetD2H is MSetD2H in the background. The descriptors are copied
	// before it returns; the memory must stay as it is until the batch is done.
	// The context ends that too. More than MaxBackgroundKeys and
	// MaxBackgroundCalls in the background are ErrBusy.
	AsyncMSetD2H(ctx context.Context, keys []string, lists []DeviceBlobList, o SetOptions) (*Batch, error)
	// AsyncMGetH2D is MGetH2D in the background.
	AsyncMGetH2D(ctx context.Context, keys []string, lists []DeviceBlobList, o GetOptions) (*Batch, error)
	// Delete is DevDelete: keys have one namespace.
	Delete(ctx context.Context, keys []string) (Results, error)
}

// Directory answers questions about keys, and changes their times to live.
type Directory interface {
	// Exist tells of each key whether it names an object whose bytes are there.
	Exist(ctx context.Context, keys []string) ([]bool, error)
	// GetMetaInfo tells the blobs of keys; with published set, of what is
	// published rather than set. The error is ErrNotFound if no key is there.
	GetMetaInfo(ctx context.Context, keys []string, published bool) ([]MetaInfo, error)
	// GenerateKey returns prefix, or for none a key that nobody has drawn.
	//
	// Errors: ErrInvalid.
	GenerateKey(prefix string) (string, error)
	// Expire gives keys a time to live from now on, in whole seconds; 0 is for
	// ever.
	Expire(ctx context.Context, keys []string, ttl time.Duration) (Results, error)
	// Each calls came once for each key, by its place: with nil as soon as it names an
	// object whose bytes are there or, with published set, as soon as it is published;
	// with ErrTimeout when the time ends before. Calls of came do not overlap, and all
	// have returned when Each returns. The error is that of a whole call that is
	// refused: came is not called then.
	Each(ctx context.Context, keys []string, published bool, timeout time.Duration, came func(i int, err error)) error
	// Wait returns what Each tells of each key, when it has told of all.
	Wait(ctx context.Context, keys []string, published bool, timeout time.Duration) (Results, error)
}
