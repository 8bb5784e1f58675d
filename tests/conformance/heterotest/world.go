package heterotest

import (
	"context"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// World is one mount with clients. Its methods are called by one test at a time.
type World interface {
	// Devices returns the devices on which clients can have memory, at least one. Cases that
	// involve two devices use the first and the last.
	Devices() []devices.Name
	// Huge returns a device of which Peer.Memory provides more than 4 GiB that occupy no space
	// before they are written; empty if there is none.
	Huge() devices.Name
	// Join creates a client, as if in a process of its own. It ends with the test, unless it has
	// ended before.
	Join(t testing.TB) Peer
	// Listen starts to receive the events of the mount's keys. It ends with the test.
	Listen(t testing.TB) Listener
}

// Limited is a world whose host device is small enough to be filled.
type Limited interface {
	// HostRoom returns a bound for the number of bytes that the host device holds.
	HostRoom() devices.Size
}

// Peer is one client with its memory. Its methods may be called from any
// goroutine of the test.
type Peer interface {
	// Client returns the same client each time. The cases may close it.
	Client() hetero.Client
	// Memory allocates n bytes of fresh memory on a device and registers it with the client.
	// The memory lives as long as the test.
	Memory(t testing.TB, device devices.Name, n devices.Size) Memory
	// Kill ends the client as the death of its process would: Close is not called. It returns
	// when the server can have noticed; the consequences may take a moment.
	Kill(t testing.TB)
}

// Memory is memory of a client as its owner accesses it: not through the objects that are made
// of it.
type Memory interface {
	// ID returns the number by which blobs refer to it.
	ID() hetero.MemoryID
	// Write writes bytes at an offset.
	Write(t testing.TB, off devices.Offset, p []byte)
	// Read fills p with the bytes at an offset.
	Read(t testing.TB, off devices.Offset, p []byte)
}

// Event is one event of a key, as objects.Event reports it.
type Event struct {
	// Kind is its name: "created", "removed", "expired", "lost", "published", "consumed",
	// "withdrawn".
	Kind string
	Key  string
	Size uint64
}

// Listener is a queue of events.
type Listener interface {
	// Next waits for the next event of the mount, of any key.
	Next(ctx context.Context) (Event, error)
}
