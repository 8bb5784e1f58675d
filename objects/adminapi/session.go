package adminapi

import (
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
)

// The paths of heterogeneous objects.
const (
	PathSession  = "/v1/session"
	PathRegister = "/v1/register"
	PathKeys     = "/v1/keys"
	PathEvents   = "/v1/events"
	// PathCall is the prefix of the path of a Verb.
	PathCall = "/v1/hetero/"
)

// SessionHeader is the header in which a call names its session.
const SessionHeader = "Hmcfs-Session"

// ContinuesHeader is the header of the answer to a request for a session that a later daemon continues
// if this one dies: the time, in seconds, within which the client must come back. It then names the
// session in SessionHeader of its request for one.
const ContinuesHeader = "Hmcfs-Continues"

// HolderSocket is the name of the socket, beside the daemon's, of the process that starts the daemon again. If nobody
// listens there any more, no daemon follows one that has died. HolderStatus is a request to it, in one packet; the status in
// its answer has gave_up, which is true if it starts none any more.
const (
	HolderSocket = "hold.sock"
	HolderStatus = `{"op":"status"}`
)

// MaxCall bounds the body of a call, in bytes: 10 000 of the longest keys have room for more
// than a hundred blobs each.
const MaxCall = 64 << 20

// Verb names a call of hetero.Client.
type Verb string

// The verbs.
const (
	VerbPublish     Verb = "publish"
	VerbSubscribe   Verb = "subscribe"
	VerbClaim       Verb = "claim"
	VerbFetch       Verb = "fetch"
	VerbSettle      Verb = "settle"
	VerbMSet        Verb = "mset"
	VerbMGet        Verb = "mget"
	VerbDelete      Verb = "delete"
	VerbLocalDelete Verb = "local-delete"
	VerbMSetD2H     Verb = "d2h"
	VerbMGetH2D     Verb = "h2d"
	VerbExist       Verb = "exist"
	VerbInfo        Verb = "info"
	VerbExpire      Verb = "expire"
	VerbWait        Verb = "wait"
	VerbUnregister  Verb = "unregister"
	VerbContinue    Verb = "continue"
)

// SessionLine is a line of the response to opening a session. The first line names the
// session. The last one reports that it has ended with everything that belonged to it; a
// session that ends otherwise has no second line.
type SessionLine struct {
	// Session is the secret that calls use to refer to it.
	Session string `json:"session,omitempty"`
	Ended   bool   `json:"ended,omitempty"`
}

// Call is the body of a call. Each verb uses some of its fields; the others are omitted.
type Call struct {
	Keys  []string                `json:"keys,omitempty"`
	Lists []hetero.DeviceBlobList `json:"lists,omitempty"`
	// Timeout bounds the wait for keys in subscribe, claim, mget, h2d and wait.
	Timeout Duration `json:"timeout,omitempty"`
	// Replica is for mget, Existing and TTL are for d2h, and TTL also for expire.
	Replica  bool            `json:"replica,omitempty"`
	Existing hetero.Existing `json:"existing,omitempty"`
	TTL      Duration        `json:"ttl,omitempty"`
	// Published selects publications in info and wait.
	Published bool `json:"published,omitempty"`
	// Async makes d2h, h2d and delete answer before they are done.
	Async bool `json:"async,omitempty"`
	// Memory is the memory that unregister releases, or claim's target.
	Memory hetero.MemoryID `json:"memory,omitempty"`
	// Received is for settle.
	Received bool `json:"received,omitempty"`
}

// Line is a line of the answer to a call: one for each key, in any order.
type Line struct {
	// N is the index of the key in the call, from 0.
	N   int    `json:"n"`
	Key string `json:"key,omitempty"`
	// Error and Code describe the failure: the text, and the Name of the hetero.Status.
	Error string `json:"error,omitempty"`
	Code  string `json:"code,omitempty"`
	// Skipped is for d2h.
	Skipped bool `json:"skipped,omitempty"`
	// Exists is for exist.
	Exists bool `json:"exists,omitempty"`
	// Device is for info, and Size and Blobs are for info and claim.
	Device devices.Name   `json:"device,omitempty"`
	Size   devices.Size   `json:"size,omitempty"`
	Blobs  []devices.Size `json:"blobs,omitempty"`
	// Begun is set in a line without a key: the call continues in the background, and the keys
	// of the preceding lines have completed already. Error is then that of the whole call.
	Begun bool `json:"begun,omitempty"`
}

// Register registers memory in a session. Its descriptors are passed with it.
type Register struct {
	// Device is the device that has the memory; it may be empty for a file.
	Device devices.Name `json:"device,omitempty"`
	// Memory is a process's memory. The FD of a piece is the index of its descriptor among
	// those received; if there are none, it is a descriptor number in the process Memory.PID.
	Memory *share.Memory `json:"memory,omitempty"`
	// File is true if the single descriptor is of a file of the mount, whose bytes are the
	// memory.
	File bool `json:"file,omitempty"`
	// Target is true if the single descriptor is of a file that claim may name as the
	// destination of a publication.
	Target bool `json:"target,omitempty"`
	// Number is the number that the memory had before, in a session that is continued.
	Number hetero.MemoryID `json:"number,omitempty"`
}

// Registered is the answer to Register.
type Registered struct {
	Memory hetero.MemoryID `json:"memory"`
}

// KeysRequest asks for the keys that begin with a prefix, or for the publications with Published set, that come after one.
type KeysRequest struct {
	Prefix    string `json:"prefix,omitempty"`
	Published bool   `json:"published,omitempty"`
	After     string `json:"after,omitempty"`
}

// KeysAnswer is one page of a list: there are More keys after the last of it.
type KeysAnswer struct {
	Keys []Key `json:"keys"`
	More bool  `json:"more,omitempty"`
}

// EventsAnswer has events of the stream, or none in the first answer, which says that it has begun.
type EventsAnswer struct {
	Events []Event `json:"events"`
}

// Key is a line of the list of keys.
type Key struct {
	Key string `json:"key"`
	// Node is the other node that has the key; empty for this one.
	Node string `json:"node,omitempty"`
	// Hidden is true if this user may not read the object.
	Hidden bool         `json:"hidden,omitempty"`
	Ino    metadata.Ino `json:"ino,omitempty"`
	// Device, Size and Blobs describe the object, as far as known.
	Device devices.Name   `json:"device,omitempty"`
	Size   devices.Size   `json:"size"`
	Blobs  []devices.Size `json:"blobs,omitempty"`
	// State is the value of user.hmc.state.
	State string `json:"state,omitempty"`
}

// Event is a line of the stream of events of keys.
type Event struct {
	// Seq is the number of the event in the mount, from 1, increasing by one.
	Seq  uint64 `json:"seq"`
	Time string `json:"time"` // RFC 3339 with nanoseconds, UTC
	// Kind is created, removed, expired, lost, published, consumed, withdrawn, conflict, or
	// dropped, which replaces events that this listener was too slow for.
	Kind   string       `json:"event"`
	Key    string       `json:"key,omitempty"`
	Ino    metadata.Ino `json:"ino,omitempty"`
	Device devices.Name `json:"device,omitempty"`
	Size   uint64       `json:"size"`
	// Dropped is the number of events that one of kind dropped replaces.
	Dropped uint64 `json:"dropped,omitempty"`
}

// EventDropped is the kind of an event that stands for others.
const EventDropped = "dropped"

// Duration is a time.Duration as text: "20s", "1.5ms".
type Duration time.Duration

// MarshalText returns the text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses a text as time.ParseDuration does.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("invalid time: %w", err)
	}
	*d = Duration(v)
	return nil
}
