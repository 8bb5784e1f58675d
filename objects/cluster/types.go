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

// The errors that callers distinguish, beside the sentinels of objects, metadata and devices,
// which are returned as on the owner.
var (
	// ErrNoNode reports that no node has that name now.
	ErrNoNode = errors.New("cluster: no such node")
	// ErrUnreachable reports that the node does not answer, or its session broke. It is
	// unknown whether the node has carried out the request.
	ErrUnreachable = errors.New("cluster: node unreachable")
	// ErrStale reports that the file, or the node's incarnation, no longer exists.
	ErrStale = errors.New("cluster: stale")
	// ErrDenied reports that the owner denies the operation to this user.
	ErrDenied = errors.New("cluster: permission denied")
	// ErrVersion reports that the node speaks another version, or belongs to another cluster.
	ErrVersion = errors.New("cluster: nodes are incompatible")
)

// Squash maps the users of other nodes to users of this node.
type Squash struct {
	// Mode selects the users that are mapped.
	Mode SquashMode
	// UID and GID are the ids that they are mapped to. Default 65534, nobody.
	UID, GID uint32
}

// SquashMode is a policy for mapping user ids.
type SquashMode string

// The policies. Users that are not mapped keep their ids.
const (
	SquashRoot SquashMode = "root" // uid 0 is mapped; gid 0 and group 0 too
	SquashAll  SquashMode = "all"
	SquashNone SquashMode = "none"
)

// Options configures a cluster.
type Options struct {
	// Name is the cluster's. Nodes of another cluster are refused.
	Name string
	// View lists the nodes; its Self is this one. Required, borrowed.
	View members.View
	// Index locates keys. If nil, all nodes are asked.
	Index keyindex.Index
	// Store has the files that this node serves. Required, borrowed.
	Store *objects.Store
	// Engine and Devices are the store's. Required, borrowed.
	Engine  *transport.Engine
	Devices []devices.Device
	// Listen has the addresses at which other nodes connect.
	Listen []control.Address
	// Secret and TLS authenticate nodes: one of them is required. With TLS a node's
	// certificate must be issued for its node name as the DNS name.
	Secret []byte
	// Plain disables encryption between nodes that use a secret. All nodes must agree.
	Plain bool
	TLS   *tls.Config
	// Transports and Channels are options of comm. Channels defaults to 4.
	Transports []comm.Transport
	Channels   int
	// Squash maps users of other nodes. Default SquashRoot to nobody.
	Squash Squash
	// Owner is the only user with access from other nodes, after mapping; nil gives access to
	// all users, subject to modes (--allow-other).
	Owner *uint32
	// ReadOnly refuses every change that another node requests, with EROFS (-o ro). Receiving
	// what is published is reading.
	ReadOnly bool
	// AttrTTL is the time for which another node's answers are cached. Default 1 s.
	AttrTTL time.Duration
	// Timeout bounds a request, and the time for which a transfer may make no progress.
	// Default 10 s.
	Timeout time.Duration
	// DialTimeout bounds the establishment of a connection. Default 3 s. A node that could not
	// be reached is not tried again for 1 s.
	DialTimeout time.Duration
	// Extensions add methods to those of this package.
	Extensions []Extension
	// Elsewhere records which files other nodes have open, for the daemon that follows; nil for nobody. Borrowed.
	Elsewhere *Elsewhere
	// Logger receives life-cycle messages; nil discards them.
	Logger *zap.Logger
}

// Invalidation describes which cached answers of a node are no longer valid.
type Invalidation struct {
	Node *Node
	// Inos have changed attributes or content, Dirs changed names. All covers everything: the
	// session broke.
	Inos, Dirs []objects.Ino
	All        bool
}
