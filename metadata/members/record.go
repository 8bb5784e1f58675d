package members

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What callers tell apart, beside the errors of coord.
var (
	// ErrName is a text that can't name a node.
	ErrName = errors.New("members: invalid node name")
	// ErrTaken: another node has the name.
	ErrTaken = errors.New("members: node name taken")
	// ErrPresent: the node is there, and can't be forgotten.
	ErrPresent = errors.New("members: node is present")
)

// maxName is the most bytes of a name: it is one label of a DNS name.
const maxName = 63

// Name is a node's name. It is a file's name under nodes/ and a DNS label, or
// several, in certificates.
type Name string

// Validate says whether the name may be used: 1 to 63 of a-z A-Z 0-9 . _ -,
// beginning with a letter or digit.
//
// Errors: ErrName.
func (n Name) Validate() error {
	first := true
	for _, r := range string(n) {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !alnum && (first || !strings.ContainsRune("._-", r)) {
			return fmt.Errorf("node name %q: use letters, digits, '.', '_' and '-': %w", string(n), ErrName)
		}
		first = false
	}
	if first || len(n) > maxName {
		return fmt.Errorf("node name %q: use 1 to %d characters: %w", string(n), maxName, ErrName)
	}
	return nil
}

// Rank is the node's rank in the communicator: the first 4 bytes, big-endian,
// of the SHA-256 of its name.
func (n Name) Rank() uint32 {
	sum := sha256.Sum256([]byte(n))
	return binary.BigEndian.Uint32(sum[:])
}

// Epoch is the incarnation of a node: another one each time that it joins,
// growing. 0 is unknown.
type Epoch uint64

// Device describes a node's device to others.
type Device struct {
	Name  string `json:"name"`
	Model string `json:"model,omitempty"`
	// Total is the device's memory in bytes.
	Total uint64 `json:"total"`
}

// Record is one node.
type Record struct {
	Name Name `json:"name"`
	// Addresses are those at which it listens, the best first: "10.0.0.1:7070", or
	// "unix:/path".
	Addresses []string `json:"addresses"`
	Epoch     Epoch    `json:"epoch"`
	// ID tells the node from another of the same name: it is kept in the
	// node's state directory, so a node that restarts has it again.
	ID      string    `json:"id,omitempty"`
	Devices []Device  `json:"devices,omitempty"`
	Version string    `json:"version,omitempty"`
	Started time.Time `json:"started,omitzero"` // for people; nothing depends on it
	// Lapsed is the time at which the lease of a node that has not left was seen
	// to have ended: it died, or is cut off. Zero for all others.
	Lapsed time.Time `json:"lapsed,omitzero"`
}

// Kind says what happened to a node.
type Kind int

// The kinds.
const (
	Joined Kind = iota
	Changed
	Left
)

// Event is one change of the view. A node that came back with another epoch
// has Left with the old record, then Joined.
type Event struct {
	Kind   Kind
	Record Record
}

// State is that of the view.
type State struct {
	// Backend is "etcd", "static" or what else keeps the view.
	Backend string `json:"backend"`
	// Endpoints are the service's addresses.
	Endpoints []string `json:"endpoints,omitempty"`
	// UnreachableSince is the time at which the service stopped answering; zero while it
	// answers.
	UnreachableSince time.Time `json:"unreachable_since,omitzero"`
	// Problem is the last error in words, or empty.
	Problem string `json:"problem,omitempty"`
	// Unreadable counts the entries of the service that are not used: they can't be
	// read, or are more than a view has.
	Unreadable int `json:"unreadable,omitempty"`
}

// View knows which nodes there are now. Its methods may be called from any
// goroutine and don't wait for the network.
type View interface {
	// Self is our own record.
	Self() Record
	// Nodes lists the others, by name.
	Nodes() []Record
	// Get finds another node.
	Get(name Name) (Record, bool)
	// ByRank finds another node by its rank.
	ByRank(rank uint32) (Record, bool)
	// OnEvent has fn called with every change from now on, in order, from one
	// goroutine; fn must not wait. cancel returns when fn is not running and
	// won't be called again.
	OnEvent(fn func(Event)) (cancel func())
	// Met notes what a node has said of itself: a static view learns epoch and
	// devices from it. Others ignore it.
	Met(r Record)
	// Forget takes a node that died or was cut off out of the view: its names are
	// gone then. A shared view does so for all nodes, a fixed list for this one,
	// and both until the node is met again.
	//
	// Errors: ErrPresent; ErrName; those of coord: ErrNotFound for a node that is
	// not known.
	Forget(ctx context.Context, name Name) error
	// State says how the view is doing.
	State() State
}
