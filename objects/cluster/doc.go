// Package cluster joins the stores of several machines: it shows the trees of other nodes,
// serves this node's tree to them, and moves bytes between any two nodes.
//
// # Ownership
//
// The node that has a device is the only authority for that device's tree: names, attributes
// and content are read and changed by requests to it. Another node caches answers for at most
// Options.AttrTTL, and drops them earlier when the owner invalidates them; the owner does so
// for everything that it has sent out within that time.
//
// # One tree
//
// A Mesh is the tree of a mount: it implements objects.Tree over this node's store and all
// Nodes, numbers the inodes of these nodes, and refuses links and renames between two of them.
// The differences between local and remote files are data: how long an answer may be cached
// (Attr.Keep), and that a request may block, so that it takes a context that ends with its
// caller.
//
// # How bytes move
//
// The owner of a file moves its bytes: a reader or writer exposes a piece of its own memory,
// under a key for this peer, and the owner puts or gets. So no peer ever has a key to the
// memory of an object, which may be freed at any time. A span of a remote file is a
// transport.Remote, and every copy is one Engine.Copy.
//
// # Extensions
//
// An Extension adds methods to those that nodes call on each other, such as collectives of
// files (package filecollect). It sends requests in the sessions of files (Session), answers
// in the sessions of other nodes (ClientSession), and ends its work for such a session when
// the session ends.
//
// # Nodes that come and go
//
// A Node is one incarnation of a remote daemon. When the incarnation is gone, or its session
// is broken, requests fail with ErrUnreachable within Options.Timeout. Open files stay open,
// and continue by being reopened once the same incarnation is back. After another incarnation
// has replaced it they fail with ErrStale. The owner of a file that loses its last name keeps it
// for a node that has it open: also while that node's daemon is gone (server.releaseAll), or
// after its own was (Elsewhere).
//
// # Keys
//
// A node that does not answer may have any key. Without an index, or while the index is
// unavailable, a key is free when every node of the view has said so; otherwise the result is
// an *UnaskedError. While the index is unavailable, each node that has said so records it, and
// asks the requester before it claims the key in the index. Nodes without an index compare, in
// each new session, the keys that they acquired since the previous one; two objects with the
// same key are resolved by their creation times. docs/cluster.md gives the rule as a table.
//
// # Trust
//
// A node that has authenticated itself (transport/control) is believed about the user on whose
// behalf it asks, as far as Options.Squash allows. The owner itself checks modes and owners
// for that user, as its kernel would: TestPermissionsAreTheKernels compares the two. Requests
// name inodes by number, so it is the requesting kernel that checks the user's access to the
// path, as with NFS; and the user that owns a file can open it whatever its mode, since the
// mode was checked when the file was created. A publication has no inode number for other
// nodes: it is received by its key.
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
// The store calls pusher.notice with locks of its own held; notice takes a pushShard.mu,
// releases it, and takes a servedSession.mu. The store is never called with any of these locks
// held, nor with pusher.mu, which is a leaf.
//
// File.mu comes before cache.mu. changedNodes.mu, cache.mu, inos.mu, slots.mu, cut.mu, peerKeys.mu,
// keyWatch.mu, inquiry.mu, conflicts.mu and incarnations.mu are leaves. Elsewhere.mu is held while
// the store opens or closes a file, with no other lock. None of them is held
// while a node is being connected to or a message is sent to it, or while the function passed
// to OnInvalidate runs.
package cluster
