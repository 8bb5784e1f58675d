package cluster

import (
	"crypto/tls"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
)

// What callers tell apart, beside the sentinels of objects, metadata and
// devices, which come back from the owner as they were there.
var (
	// ErrNoNode: no node has that name now.
	ErrNoNode = errors.New("cluster: no such node")
	// ErrUnreachable: the node does not answer, or its session broke. Whether
	// it has carried out what was asked is not known.
	ErrUnreachable = errors.New("cluster: node unreachable")
	// ErrStale: the file, or the node's incarnation, is gone.
	ErrStale = errors.New("cluster: stale")
	// ErrDenied: the owner does not allow it to this user.
	ErrDenied = errors.New("cluster: permission denied")
	// ErrVersion: the node speaks another version, or is of another cluster.
	ErrVersion = errors.New("cluster: nodes don't fit together")
)

// Squash says who a user of another node is here.
type Squash struct {
	// Mode says which users are mapped.
	Mode SquashMode
	// UID and GID are who the mapped users are. Default 65534, nobody.
	UID, GID uint32
}

// SquashMode is a policy of user ids.
type SquashMode string

// The policies. All others keep their numbers.
const (
	SquashRoot SquashMode = "root" // uid 0 is mapped; gid 0 and group 0 too
	SquashAll  SquashMode = "all"
	SquashNone SquashMode = "none"
)

// Options describe a cluster.
type Options struct {
	// Name is the cluster's. Nodes of another one are refused.
	Name string
	// View says which nodes there are; its Self is this one. Required,
	// borrowed.
	View members.View
	// Index says where keys are. Nil asks each node.
	Index keyindex.Index
	// Store has the files that this node serves. Required, borrowed.
	Store *objects.Store
	// Engine and Devices are the store's. Required, borrowed.
	Engine  *transport.Engine
	Devices []devices.Device
	// Listen has the addresses at which other nodes connect.
	Listen []control.Address
	// Secret and TLS prove who is there: one is required. With TLS a node's
	// certificate is for the DNS name that is its node name.
	Secret []byte
	// Plain leaves what goes between nodes by a secret unencrypted. All nodes must
	// have it.
	Plain bool
	TLS   *tls.Config
	// Transports, Channels are comm's. Channels defaults to 4.
	Transports []comm.Transport
	Channels   int
	// Squash maps users of other nodes. Default SquashRoot to nobody.
	Squash Squash
	// Owner is the only user who gets in from other nodes, after mapping;
	// nil is everybody, as modes allow (--allow-other).
	Owner *uint32
	// AttrTTL is the time another node's answers are remembered. Default 1 s.
	AttrTTL time.Duration
	// Timeout bounds a question, and the time that a transfer may stand still.
	// Default 10 s.
	Timeout time.Duration
	// DialTimeout bounds making a connection. Default 3 s. A node that could
	// not be reached is not tried again for 1 s.
	DialTimeout time.Duration
	// Extensions add methods to those of this package.
	Extensions []Extension
	// Logger gets life-cycle messages; nil is silent.
	Logger *zap.Logger
}

// NodeState describes another node as far as it is known without asking it.
type NodeState struct {
	members.Record
	// Connected says that there is a session, Transport by what.
	Connected bool   `json:"connected"`
	Transport string `json:"transport,omitempty"`
	// Protection names the protection of the session: tls, secret, plain (nothing, as both
	// nodes were told), or local (nothing, on a socket of this machine).
	Protection string `json:"protection,omitempty"`
	// Remote is the address that its connection comes from, or goes to; empty for
	// a socket of this machine, and where there is none.
	Remote string `json:"remote,omitempty"`
	// Problem tells why the last attempt to reach it failed, or is empty.
	Problem string `json:"problem,omitempty"`
}

// Invalidation says which answers of a node may not be remembered any more.
type Invalidation struct {
	Node *Node
	// Inos have other attributes or content, Dirs other names. All is
	// everything: the session broke.
	Inos, Dirs []objects.Ino
	All        bool
}

// Stats counts since the beginning.
type Stats struct {
	Questions uint64 `json:"questions"` // asked of others
	Answers   uint64 `json:"answers"`   // given to others
	Failures  uint64 `json:"failures"`
	BytesIn   uint64 `json:"bytes_in"`
	BytesOut  uint64 `json:"bytes_out"`
	// Invalidations sent and received.
	InvalidationsOut uint64 `json:"invalidations_out"`
	InvalidationsIn  uint64 `json:"invalidations_in"`
}
