package adminapi

import (
	"time"

	"github.com/hmcfs/hmcfs/metadata/members"
)

// PathCluster is the path of Cluster alone.
const PathCluster = "/v1/cluster"

// PathForget is the path that removes a node that is gone from the cluster: ForgetRequest →
// Cluster.
const PathForget = "/v1/cluster/forget"

// ForgetRequest names the node.
type ForgetRequest struct {
	Node members.Name `json:"node"`
}

// Cluster describes the cluster that a mount belongs to.
type Cluster struct {
	// Name distinguishes clusters that share a service.
	Name string `json:"name"`
	// Self is the record that other nodes have of this one.
	Self members.Record `json:"self"`
	// Listening are the addresses that the node actually listens at.
	Listening []string `json:"listening"`
	// Squash is the value of the option that maps users of other nodes.
	Squash string `json:"squash"`
	// State is the state of the view of the nodes.
	State members.State `json:"state"`
	// Nodes are the other nodes, by name.
	Nodes []Node `json:"nodes"`
	// Traffic has counts since the mount.
	Traffic Traffic `json:"traffic"`
	// Conflicts is the number of keys that were found in use at two nodes since the mount, and
	// LastConflicts are the last of them, oldest first.
	Conflicts     uint64        `json:"conflicts,omitempty"`
	LastConflicts []KeyConflict `json:"last_conflicts,omitempty"`
}

// KeyConflict is a key that was in use at two nodes.
type KeyConflict struct {
	Key       string `json:"key"`
	Published bool   `json:"published,omitempty"`
	// Node is the other one.
	Node members.Name `json:"node"`
	// Kept is true if the object of this node has kept the key.
	Kept bool `json:"kept"`
	// Path is the file of this node.
	Path string    `json:"path"`
	Time time.Time `json:"time"`
}

// Node describes another node, as far as this one knows it without sending a request.
type Node struct {
	members.Record
	// Connected is true if there is a session, and Transport is its transport.
	Connected bool   `json:"connected"`
	Transport string `json:"transport,omitempty"`
	// Protection is the protection of the session: tls, secret, plain (none, as configured on
	// both nodes), or local (none, on a socket of this machine).
	Protection string `json:"protection,omitempty"`
	// Remote is the address that its connection comes from, or goes to; empty for a node of
	// the same machine.
	Remote string `json:"remote,omitempty"`
	// Problem is the reason why the last attempt to reach it failed, or empty.
	Problem string `json:"problem,omitempty"`
}

// Traffic has counts of the communication between this node and the others.
type Traffic struct {
	// Questions is the number of requests sent to other nodes, Answers the number of requests
	// of other nodes answered. Failures is the number of requests that got no answer.
	Questions uint64 `json:"questions"`
	Answers   uint64 `json:"answers"`
	Failures  uint64 `json:"failures"`
	BytesIn   uint64 `json:"bytes_in"`
	BytesOut  uint64 `json:"bytes_out"`
	// Invalidations notify nodes of changes of something that they may have cached.
	InvalidationsOut uint64 `json:"invalidations_out"`
	InvalidationsIn  uint64 `json:"invalidations_in"`
}
