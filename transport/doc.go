// Package transport is the communication core: it moves bytes between spans
// of memory, here and, later, on a peer.
package transport
