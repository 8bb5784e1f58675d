// Package cluster joins the stores of several machines: it shows the trees of
// other nodes, serves ours to them, and moves bytes between any two.
//
// # Who owns what
//
// The node that has a device answers for its tree, alone: names, attributes
// and content are read and changed by asking it. What another node remembers of
// them it remembers for Options.AttrTTL at most, and forgets earlier when the
// owner says so, which it does for everything that it has given out within that
// time.
//
// # One tree
//
// A Mesh is what a mount shows: it implements objects.Tree over this node's store and all
// Nodes, numbers the inodes of these, and refuses links and renames between two of them.
// What differs there is data: how long an answer may be kept (Attr.Keep), and that a
// question may wait, so that it takes a context that ends with its caller.
//
// # The way of bytes
//
// The owner of a file moves them: a reader or writer lends a piece of its own
// memory, under a key for this peer, and the owner puts or gets. So no peer ever
// has a key to the memory of an object, which may be freed at any time. A span
// of a remote file is a transport.Remote, and every copy is one Engine.Copy.
//
// # Extensions
//
// An Extension adds methods to those that nodes ask each other: collectives of files are
// one (package filecollect). It asks in the sessions of files (Session), answers in those of
// other nodes (ClientSession), and ends what it has when such a session leaves.
//
// # Nodes that come and go
//
// A Node is one incarnation. When it has gone, or its session broke, questions
// fail (ErrUnreachable) no later than Options.Timeout; what is open stays open
// and goes on when the same incarnation is back, by opening the file again.
// After another incarnation came it is ErrStale.
//
// # Keys
//
// A node that does not answer may have any key. Without an index, or while that is
// away, a key is free when every node of the view has said so; otherwise it is an
// *UnaskedError. With the index away each node that has said so notes it, and asks
// the asker before it claims the key in the index. Nodes without an index compare
// the keys that they got since the last time in each new session, and two objects
// of one key are settled by the times at which they were made; docs/cluster.md has
// the rule as a table.
//
// # Trust
//
// A node that has proved itself (transport/control) is believed which user asks
// it, as far as Options.Squash allows. The owner checks modes and owners by
// itself, for that user, as its kernel would: TestPermissionsAreTheKernels holds
// the two side by side. Inodes are asked for by their numbers, so it is up to
// the asker's kernel that the way to them was open to the user, as with NFS; and
// the owner of a file opens it whatever its mode says, since that was checked
// when it was made. What is published has no number to others: it is received by
// its key.
//
// # Lock order
//
//	Cluster.mu
//	  Node.mu
//
//	server.mu
//	  servedSession.mu
//	    pushShard.mu
//
// pusher.notice is called by the store with locks of its own held; it takes a
// pushShard.mu, lets go of it, and takes a servedSession.mu. Nothing of the store is
// called with any of these, or pusher.mu, which is a leaf, held.
//
// File.mu comes before cache.mu. newsBox.mu, cache.mu, inos.mu, slots.mu,
// cut.mu, peerKeys.mu, keyWatch.mu, inquiry.mu, conflicts.mu and
// incarnations.mu are
// leaves. None of them is held while a node is asked, connected or
// told, or while OnInvalidate's function runs.
package cluster
