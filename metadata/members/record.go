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

// Errors that callers distinguish, besides those of coord.
var (
	// ErrName: the text is not a valid node name.
	ErrName = errors.New("members: invalid node name")
	// ErrTaken: another node has the name, or its rank.
	ErrTaken = errors.New("members: node name taken")
	// ErrPresent: the node is present, so it can't be forgotten.
	ErrPresent = errors.New("members: node is present")
)

// maxName is the maximum length of a name in bytes: that of one label of a DNS name.
const maxName = 63

// Name is a node's name. It is used as a file name under nodes/, and as a DNS label, or
// several, in certificates.
type Name string

// Validate reports why the name is not allowed: it needs 1 to 63 of a-z A-Z 0-9 . _ -,
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

// Epoch identifies an incarnation of a node. It increases each time that the node joins, except
// where a daemon continues what another one has left (Record.Life). 0 means unknown.
type Epoch uint64

// Device describes a node's device to other nodes.
type Device struct {
	Name  string `json:"name"`
	Model string `json:"model,omitempty"`
	// Total is the device's memory in bytes.
	Total uint64 `json:"total"`
}

// Record describes one node.
type Record struct {
	Name Name `json:"name"`
	// Addresses are those at which the node listens, in order of preference:
	// "10.0.0.1:7070", or "unix:/path".
	Addresses []string `json:"addresses"`
	Epoch     Epoch    `json:"epoch"`
	// ID distinguishes the node from another of the same name. It is kept in the node's
	// state directory, so that it survives a restart.
	ID string `json:"id,omitempty"`
	// Held is set if the death of the node's daemon is expected to be a pause, after which another
	// daemon continues the incarnation.
	Held bool `json:"held,omitempty"`
	// Life counts the daemons that have continued the incarnation: of two daemons, the one with the
	// lower count is dead.
	Life    uint64   `json:"life,omitempty"`
	Devices []Device `json:"devices,omitempty"`
	Version string   `json:"version,omitempty"`
	// Started is the time at which the daemon started, by its clock.
	Started time.Time `json:"started,omitzero"`
	// Lapsed is the time at which the lease of a node that did not leave was seen to have
	// ended, because it died or is cut off. Zero for all other nodes.
	Lapsed time.Time `json:"lapsed,omitzero"`
}

// Kind is the kind of an Event.
type Kind int

// The kinds.
const (
	Joined Kind = iota
	Changed
	Left
)

// Event is one change of the view. For a node that came back with a new epoch there is a
// Left with the old record, then a Joined.
type Event struct {
	Kind   Kind
	Record Record
}

// State is the state of a view.
type State struct {
	// Backend is "etcd", "static" or another name of the source of the view.
	Backend string `json:"backend"`
	// Endpoints are the service's addresses.
	Endpoints []string `json:"endpoints,omitempty"`
	// UnreachableSince is the time at which the service stopped answering; zero while it
	// answers.
	UnreachableSince time.Time `json:"unreachable_since,omitzero"`
	// Problem is the text of the last error, or empty.
	Problem string `json:"problem,omitempty"`
	// Unreadable counts the entries of the service that are not used because they can't be
	// decoded or exceed the bounds of a view.
	Unreadable int `json:"unreadable,omitempty"`
}

// View lists the current nodes. Its methods are safe for concurrent use, and all but Forget
// return without waiting for the network.
type View interface {
	// Self returns this node's record.
	Self() Record
	// Nodes lists the other nodes, by name.
	Nodes() []Record
	// Get finds another node.
	Get(name Name) (Record, bool)
	// ByRank finds another node by its rank.
	ByRank(rank uint32) (Record, bool)
	// OnEvent has fn called with every change from now on, in order, from one goroutine; fn
	// must not block. cancel returns once fn is not running and will not be called again.
	OnEvent(fn func(Event)) (cancel func())
	// Met records what a node has reported of itself: a static view learns epoch and
	// devices from it. Other views ignore it.
	Met(r Record)
	// Forget removes a node that died or was cut off from the view, and with it the node's
	// names. A shared view removes it for all nodes, a static one for this node only, both
	// until the node is met again.
	//
	// Errors: ErrPresent; ErrName; those of coord: ErrNotFound for an unknown node.
	Forget(ctx context.Context, name Name) error
	// State reports the state of the view.
	State() State
}
