package keyindex

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// Space is one of the two namespaces of keys.
type Space string

// The spaces.
const (
	Keys    Space = "keys"
	Publish Space = "publish"
)

// Place is the location of a key.
type Place struct {
	Key  string       `json:"key"`
	Node members.Name `json:"node"`
}

// TakenError reports that another node has a key. It wraps metadata.ErrExist.
type TakenError struct {
	Key  string
	Node members.Name
}

// Error names the key and the node that has it.
func (e *TakenError) Error() string {
	return fmt.Sprintf("node %s has key %q: %v", e.Node, e.Key, metadata.ErrExist)
}

// Unwrap returns metadata.ErrExist.
func (e *TakenError) Unwrap() error { return metadata.ErrExist }

// Contested receives keys in use here that another node has claimed before, up to 1024 of
// one node at a time. It reports whether the conflict is settled, that is, whether only the
// node named by the service still has the keys. It returns false while that node has yet to
// give up one of the keys, or to answer.
type Contested func(s Space, keys []string, by members.Name) (settled bool)

// Index records where keys are. Its methods are safe for concurrent use.
type Index interface {
	// Claim claims keys for this node. Each key's error is nil, also if this node has the
	// key already; a *TakenError; or coord.ErrUnavailable if the service did not answer, in
	// which case the key is not claimed. It waits for the service no longer than the
	// service's own timeout; a key that is still waiting for another request when the
	// context ends has the context's error.
	Claim(ctx context.Context, s Space, keys []string) []error
	// Have claims, in the background, keys that are already in use here, as long as no
	// other node has them, now or later.
	Have(s Space, keys []string)
	// OnContested has fn called, from one goroutine, with keys that were passed to Have and
	// that another node has claimed before. Keys that stay contested are passed to it
	// again, and soon if fn reported that they are not settled.
	OnContested(fn Contested)
	// Has reports whether a key is in use here, or about to be.
	Has(s Space, key string) bool
	// Release gives keys up, in the background.
	Release(s Space, keys []string)
	// Find returns the other node that has a key. Errors: metadata.ErrNotExist;
	// coord.ErrUnavailable, and the others of coord.
	Find(ctx context.Context, s Space, key string) (Place, error)
	// Forget discards the remembered result of Find for a key that turned out to be wrong.
	Forget(s Space, key string)
	// List lists, in order, the keys after the given one of all nodes, including this one.
	// Fewer than limit results mean that there are no more.
	List(ctx context.Context, s Space, after string, limit int) ([]Place, error)
	// Watch starts to report which of the keys other nodes claim from now on; earlier
	// claims are found by Find. A key that a node has claimed may not be visible on that
	// node yet.
	Watch(ctx context.Context, s Space, keys []string) (*Watch, error)
	// State reports the state of the index.
	State() State
}

// State counts this node's keys.
type State struct {
	// Keys counts the keys in use, of both spaces.
	Keys int `json:"keys"`
	// Unasked counts those of them that other nodes don't know of yet because the service
	// can't be reached.
	Unasked int `json:"unasked,omitempty"`
	// Contested counts those that another node has too and claimed first: they are in use
	// here only.
	Contested int `json:"contested,omitempty"`
	// Unreadable counts the entries of the service that can't be decoded.
	Unreadable int `json:"unreadable,omitempty"`
}
