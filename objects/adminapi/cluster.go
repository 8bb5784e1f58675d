package adminapi

import (
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
	Nodes []members.Peer `json:"nodes"`
	// Traffic has counts since the mount.
	Traffic members.Traffic `json:"traffic"`
	// Conflicts is the number of keys that were found in use at two nodes since the mount, and
	// LastConflicts are the last of them, oldest first.
	Conflicts     uint64                `json:"conflicts,omitempty"`
	LastConflicts []members.KeyConflict `json:"last_conflicts,omitempty"`
}
