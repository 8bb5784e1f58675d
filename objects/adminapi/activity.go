package adminapi

import "time"

// The paths of what watching a mount needs.
const (
	PathActivity = "/v1/activity"
	PathPage     = "/v1/page"
	// PathTopology and PathListing are served by the page alone: the first answers with
	// .hmcfs/topology.json, the second with a Listing of the directory ?dir=NAME.
	PathTopology = "/v1/topology"
	PathListing  = "/v1/listing"
)

// Activity describes what is going on in a mount.
type Activity struct {
	// Processes are those that moved bytes in the last minutes.
	Processes []Process `json:"processes"`
	Sessions  []Session `json:"sessions"`
	// Slow are the last operations that took long, the oldest first.
	Slow []SlowOperation `json:"slow"`
}

// Process counts the bytes that a process has moved since it was first seen. Bytes of host files
// that the kernel serves itself (passthrough) are not included.
type Process struct {
	// PID is 0 for the kernel itself, and for processes that have no number here.
	PID int `json:"pid"`
	UID int `json:"uid"`
	// Command is the name of its program, as far as known.
	Command string `json:"command,omitempty"`
	// Ended is set if the process has ended, some seconds ago.
	Ended bool `json:"ended,omitempty"`
	// Session is set for the calls of sessions, and not for reads and writes of a mount's files.
	Session      bool      `json:"session"`
	Reads        uint64    `json:"reads"`
	ReadBytes    uint64    `json:"read_bytes"`
	Writes       uint64    `json:"writes"`
	WrittenBytes uint64    `json:"written_bytes"`
	Last         time.Time `json:"last"`
}

// Session is one open session.
type Session struct {
	PID     int       `json:"pid"`
	UID     int       `json:"uid"`
	Command string    `json:"command,omitempty"`
	Begun   time.Time `json:"begun"`
}

// SlowOperation is one operation that took long: a request of the kernel, or a call of a session.
type SlowOperation struct {
	// At is the time of its end.
	At      time.Time `json:"at"`
	Name    string    `json:"name"`
	Seconds float64   `json:"seconds"`
	// Session is set for a call of a session, whose process is PID.
	Session bool `json:"session"`
	PID     int  `json:"pid,omitempty"`
	UID     int  `json:"uid,omitempty"`
}

// Page names the page that shows a mount.
type Page struct {
	// URL includes the token that gives access to it.
	URL string `json:"url"`
}

// Listing has the entries of a directory.
type Listing struct {
	Entries []Entry `json:"entries"`
	// More is set if the directory has more entries than a listing.
	More bool `json:"more"`
}

// Entry is a file or a directory.
type Entry struct {
	Name string `json:"name"`
	// Type is that of a FileInfo.
	Type     string    `json:"type"`
	Size     uint64    `json:"size"`
	UID      int       `json:"uid"`
	Mode     uint32    `json:"mode"`
	Modified time.Time `json:"modified"`
	State    string    `json:"state,omitempty"`
	Dtype    string    `json:"dtype,omitempty"`
	Shape    string    `json:"shape,omitempty"`
	Key      string    `json:"key,omitempty"`
	// Path is the path that its last bytes took.
	Path string `json:"path,omitempty"`
}
