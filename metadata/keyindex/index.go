package keyindex

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// Space is one of the two sets of keys.
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

// TakenError says that another node has a key. It is metadata.ErrExist.
type TakenError struct {
	Key  string
	Node members.Name
}

// Error tells whose it is.
func (e *TakenError) Error() string {
	return fmt.Sprintf("node %s has key %q: %v", e.Node, e.Key, metadata.ErrExist)
}

// Unwrap is metadata.ErrExist.
func (e *TakenError) Unwrap() error { return metadata.ErrExist }

// Contested hears of keys in use here that another node has claimed before, up to
// 1024 of one node at a time. It says whether that is settled: what is left is the
// node's that the service names. It is not while that node has yet to give one of
// the keys up, or to answer.
type Contested func(s Space, keys []string, by members.Name) (settled bool)

// Index tells where keys are. Its methods may be called from any goroutine.
type Index interface {
	// Claim makes keys ours. For each the error is nil, also when it was ours
	// before, a *TakenError, or coord.ErrUnavailable where the service did not
	// answer: the key is not ours then. It waits
	// for the service no longer than the service's own time limit; a key whose
	// turn has not come when the context ends has the context's error.
	Claim(ctx context.Context, s Space, keys []string) []error
	// Have makes keys ours that are in use here already, in the background: as
	// far as no other node has them, now or later.
	Have(s Space, keys []string)
	// OnContested has fn called, from one goroutine, with keys that Have has made
	// ours and that another node has claimed before. It is called again with those
	// that stay so, and soon with those of which it says that they are not settled.
	OnContested(fn Contested)
	// Has says whether a key is in use here, or about to be.
	Has(s Space, key string) bool
	// Release gives keys up, in the background.
	Release(s Space, keys []string)
	// Find says which other node has a key. Errors: metadata.ErrNotExist;
	// coord.ErrUnavailable, and the others of coord.
	Find(ctx context.Context, s Space, key string) (Place, error)
	// Forget forgets what Find has said of a key, which was not there.
	Forget(s Space, key string)
	// List lists the keys of all nodes, our own among them, behind a key, in
	// order; fewer than limit are the last.
	List(ctx context.Context, s Space, after string, limit int) ([]Place, error)
	// Watch begins to tell which of the keys other nodes get from now on: what
	// was there before is found by Find. A key that a node has claimed may not be
	// visible there yet.
	Watch(ctx context.Context, s Space, keys []string) (Watch, error)
	// State says how the index is doing.
	State() State
}

// Watch is keys that come. It is used by one goroutine; Close may come from
// another.
type Watch interface {
	// Next waits for the next keys, at least one. After an error there are no
	// more; what has come since is not told.
	//
	// Errors: those of coord; the context's.
	Next(ctx context.Context) ([]Place, error)
	// Close ends the watch.
	Close()
}

// State counts this node's keys.
type State struct {
	// Keys counts those in use, of both spaces.
	Keys int `json:"keys"`
	// Unasked are those of them that the others don't know of yet, since the
	// service can't be asked.
	Unasked int `json:"unasked,omitempty"`
	// Contested are those that another node has too, and had before us: they
	// are in use here alone.
	Contested int `json:"contested,omitempty"`
	// Unreadable counts the entries of the service that can't be read.
	Unreadable int `json:"unreadable,omitempty"`
}
