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
	// PathCall is in front of a Verb.
	PathCall = "/v1/hetero/"
)

// SessionHeader is the header in which a call names its session.
const SessionHeader = "Hmcfs-Session"

// MaxCall bounds the body of a call in bytes: 10 000 of the longest keys have
// room for more than a hundred blobs each.
const MaxCall = 64 << 20

// Verb names a call: one of those of hetero.Client.
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
)

// SessionLine is a line of the answer that is a session: the first names it.
// The last says that it has ended with all that was its own; a session that
// ends otherwise has no second line.
type SessionLine struct {
	// Session is the secret by which calls belong to it.
	Session string `json:"session,omitempty"`
	Ended   bool   `json:"ended,omitempty"`
}

// Call is the body of a call. Each verb takes some of its fields; the others
// are left out.
type Call struct {
	Keys  []string                `json:"keys,omitempty"`
	Lists []hetero.DeviceBlobList `json:"lists,omitempty"`
	// Timeout bounds the wait for keys in subscribe, claim, mget, h2d and wait.
	Timeout Duration `json:"timeout,omitempty"`
	// Replica is mget's, Existing and TTL are d2h's, and TTL expire's.
	Replica  bool            `json:"replica,omitempty"`
	Existing hetero.Existing `json:"existing,omitempty"`
	TTL      Duration        `json:"ttl,omitempty"`
	// Published asks info and wait for what is published.
	Published bool `json:"published,omitempty"`
	// Async has d2h, h2d and delete answer before they are done.
	Async bool `json:"async,omitempty"`
	// Memory names the memory that unregister releases, or claim's target.
	Memory hetero.MemoryID `json:"memory,omitempty"`
	// Received is settle's.
	Received bool `json:"received,omitempty"`
}

// Line is a line of the answer to a call: one for each key, in any order.
type Line struct {
	// N is the place of the key in the call, from 0.
	N   int    `json:"n"`
	Key string `json:"key,omitempty"`
	// Error and Code are why it failed: the words, and the Name of the
	// hetero.Status.
	Error string `json:"error,omitempty"`
	Code  string `json:"code,omitempty"`
	// Skipped is d2h's.
	Skipped bool `json:"skipped,omitempty"`
	// Exists is exist's.
	Exists bool `json:"exists,omitempty"`
	// Device is info's, and Size and Blobs are its and claim's.
	Device devices.Name   `json:"device,omitempty"`
	Size   devices.Size   `json:"size,omitempty"`
	Blobs  []devices.Size `json:"blobs,omitempty"`
	// Begun is of no key: what goes on in the background is under way, and the
	// keys whose lines came before have ended already. Error is then that of
	// the whole call.
	Begun bool `json:"begun,omitempty"`
}

// Register makes memory known to a session. Its descriptors travel with it.
type Register struct {
	// Device is the device whose memory it is; it may be empty for a file.
	Device devices.Name `json:"device,omitempty"`
	// Memory is a process's memory. The FD of a piece is the place of its
	// descriptor among those that have come; where none have, a number in the
	// process Memory.PID.
	Memory *share.Memory `json:"memory,omitempty"`
	// File says that the one descriptor is of a file of the mount, whose bytes
	// are the memory.
	File bool `json:"file,omitempty"`
	// Target says that the one descriptor is of a file that claim may name as
	// what a publication is written to.
	Target bool `json:"target,omitempty"`
	// Descriptors is the number of descriptors that travel with the request.
	Descriptors int `json:"descriptors,omitempty"`
}

// Registered is the answer.
type Registered struct {
	Memory hetero.MemoryID `json:"memory"`
}

// Key is a line of the list of keys.
type Key struct {
	Key string `json:"key"`
	// Node is the other node that has it; empty is this one.
	Node string `json:"node,omitempty"`
	// Hidden says that the object's owner lets this user read nothing of it.
	Hidden bool         `json:"hidden,omitempty"`
	Ino    metadata.Ino `json:"ino,omitempty"`
	// Device, Size and Blobs are what is known of the object.
	Device devices.Name   `json:"device,omitempty"`
	Size   devices.Size   `json:"size"`
	Blobs  []devices.Size `json:"blobs,omitempty"`
	// State is that of user.hmc.state.
	State string `json:"state,omitempty"`
}

// Event is a line of what happens to keys.
type Event struct {
	// Seq grows by one with each event of the mount, from 1.
	Seq  uint64 `json:"seq"`
	Time string `json:"time"` // RFC 3339 with nanoseconds, UTC
	// Kind is created, removed, expired, lost, published, consumed, withdrawn,
	// conflict, or dropped for events that this listener was too slow for.
	Kind   string       `json:"event"`
	Key    string       `json:"key,omitempty"`
	Ino    metadata.Ino `json:"ino,omitempty"`
	Device devices.Name `json:"device,omitempty"`
	Size   uint64       `json:"size"`
	// Dropped counts the events that one of kind dropped stands for.
	Dropped uint64 `json:"dropped,omitempty"`
}

// Duration is a time.Duration as text: "20s", "1.5ms".
type Duration time.Duration

// MarshalText makes the text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a text as time.ParseDuration does.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("a time: %w", err)
	}
	*d = Duration(v)
	return nil
}
