package members

import "time"

// Peer describes another node as far as this one knows it without sending a request.
type Peer struct {
	Record
	// Connected is true if there is a session, and Transport is its transport.
	Connected bool   `json:"connected"`
	Transport string `json:"transport,omitempty"`
	// Protection is the protection of the session: tls, secret, plain (none, as configured on
	// both nodes), or local (none, on a socket of this machine).
	Protection string `json:"protection,omitempty"`
	// Remote is the address that its connection comes from, or goes to; empty for a socket of
	// this machine, and if there is no connection.
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

// KeyConflict is a key that was in use at two nodes.
type KeyConflict struct {
	Key       string `json:"key"`
	Published bool   `json:"published,omitempty"`
	// Node is the other one.
	Node Name `json:"node"`
	// Kept is true if the object of this node has kept the key.
	Kept bool `json:"kept"`
	// Path is the file of this node.
	Path string    `json:"path"`
	Time time.Time `json:"time"`
}
