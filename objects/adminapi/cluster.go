package adminapi

import "github.com/hmcfs/hmcfs/metadata/members"

// PathCluster is Cluster alone.
const PathCluster = "/v1/cluster"

// Cluster is a mount among those of other machines.
type Cluster struct {
	// Name tells clusters apart that share a service.
	Name string `json:"name"`
	// Self is what other nodes know of this one.
	Self members.Record `json:"self"`
	// Listening are the addresses that it really listens at.
	Listening []string `json:"listening"`
	// Squash is who users of other nodes are here, as the option has it.
	Squash string `json:"squash"`
	// State is how the view of the nodes is doing.
	State members.State `json:"state"`
	// Nodes are the others, by name.
	Nodes []Node `json:"nodes"`
	// Traffic counts since the mount.
	Traffic Traffic `json:"traffic"`
}

// Node is another node, as this one knows it without asking.
type Node struct {
	members.Record
	// Connected says that there is a session, Transport by what its bytes go.
	Connected bool   `json:"connected"`
	Transport string `json:"transport,omitempty"`
	// Problem is why the last attempt to reach it failed, or empty.
	Problem string `json:"problem,omitempty"`
}

// Traffic is what was said between this node and the others.
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
