package heterotest

import (
	"context"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// World is one mount, with clients. Its methods are called by one test
// at a time.
type World interface {
	// Devices names the devices whose memory clients can have, at least one.
	// Cases that go across devices take the first and the last.
	Devices() []devices.Name
	// Huge names a device of which Peer.Memory gives more than 4 GiB that take
	// no room before they are written; empty where there is none.
	Huge() devices.Name
	// Join makes a client, as a process of its own has one. It ends with the
	// test, unless it has ended before.
	Join(t testing.TB) Peer
	// Listen begins to hear what happens to keys of the mount. It ends with the
	// test.
	Listen(t testing.TB) Listener
}

// Limited is a world whose host device is small enough to be filled.
type Limited interface {
	// HostRoom bounds the bytes that the host device takes.
	HostRoom() devices.Size
}

// Peer is one client with its memory. Its methods may be called from any
// goroutine of the test.
type Peer interface {
	// Client is the same one each time. The cases may close it.
	Client() hetero.Client
	// Memory takes n bytes of fresh memory on a device and registers it with
	// the client. The memory lives as long as the test.
	Memory(t testing.TB, device devices.Name, n devices.Size) Memory
	// Kill ends the client as the death of its process does: nobody calls
	// Close. It returns when whoever serves it may know; what follows from it
	// may take a moment.
	Kill(t testing.TB)
}

// Memory is memory of a client, seen by its owner: not by way of the objects
// that are made of it.
type Memory interface {
	// ID returns the number by which blobs name it.
	ID() hetero.MemoryID
	// Write puts bytes at an offset.
	Write(t testing.TB, off devices.Offset, p []byte)
	// Read fills p with the bytes at an offset.
	Read(t testing.TB, off devices.Offset, p []byte)
}

// Event is one thing that happened to a key, as objects.Event tells it.
type Event struct {
	// Kind is the word of it: "created", "removed", "expired", "lost",
	// "published", "consumed", "withdrawn".
	Kind string
	Key  string
	Size uint64
}

// Listener is a queue of events.
type Listener interface {
	// Next waits for the next event of the mount, of any key.
	Next(ctx context.Context) (Event, error)
}
