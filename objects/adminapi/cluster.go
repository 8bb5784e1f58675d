package adminapi

import (
	"time"

	"github.com/hmcfs/hmcfs/metadata/members"
)

// PathCluster is Cluster alone.
const PathCluster = "/v1/cluster"

// PathForget takes a node that is gone out of the cluster: ForgetRequest → Cluster.
const PathForget = "/v1/cluster/forget"

// ForgetRequest names the node.
type ForgetRequest struct {
	Node members.Name `json:"node"`
}

// Cluster is a mount among those of other machines.
type Cluster struct {
	// Name tells clusters apart that share a service.
	Name string `json:"name"`
	// Self is the record that other nodes have of this one.
	Self members.Record `json:"self"`
	// Listening are the addresses that it really listens at.
	Listening []string `json:"listening"`
	// Squash says which users others are mapped to here, as the option has it.
	Squash string `json:"squash"`
	// State is that of the view of the nodes.
	State members.State `json:"state"`
	// Nodes are the others, by name.
	Nodes []Node `json:"nodes"`
	// Traffic counts since the mount.
	Traffic Traffic `json:"traffic"`
	// Conflicts counts the keys that were found in use at two nodes since the
	// mount, and LastConflicts are the last of them, the oldest first.
	Conflicts     uint64        `json:"conflicts,omitempty"`
	LastConflicts []KeyConflict `json:"last_conflicts,omitempty"`
}

// KeyConflict is a key that was in use at two nodes.
type KeyConflict struct {
	Key       string `json:"key"`
	Published bool   `json:"published,omitempty"`
	// Node is the other one.
	Node members.Name `json:"node"`
	// Kept says that the object of this node has kept the key.
	Kept bool `json:"kept"`
	// Path is the file of this node.
	Path string    `json:"path"`
	Time time.Time `json:"time"`
}

// Node is another node, as this one knows it without asking.
type Node struct {
	members.Record
	// Connected says that there is a session, Transport by what its bytes go.
	Connected bool   `json:"connected"`
	Transport string `json:"transport,omitempty"`
	// Protection names the protection of the session: tls, secret, plain (nothing, as both
	// nodes were told), or local (nothing, on a socket of this machine).
	Protection string `json:"protection,omitempty"`
	// Remote is the address that its connection comes from, or goes to; empty for
	// one of the same machine.
	Remote string `json:"remote,omitempty"`
	// Problem tells why the last attempt to reach it failed, or is empty.
	Problem string `json:"problem,omitempty"`
}

// Traffic counts what was said between this node and the others.
type Traffic struct {
	// Questions were asked of others, Answers given to others. Failures are
	// questions that had no answer.
	Questions uint64 `json:"questions"`
	Answers   uint64 `json:"answers"`
	Failures  uint64 `json:"failures"`
	BytesIn   uint64 `json:"bytes_in"`
	BytesOut  uint64 `json:"bytes_out"`
	// Invalidations tell who remembers something that it has changed.
	InvalidationsOut uint64 `json:"invalidations_out"`
	InvalidationsIn  uint64 `json:"invalidations_in"`
}
