package keyindex

import (
	"context"

	"github.com/hmcfs/hmcfs/metadata/members"
)

// Space is one of the two sets of keys.
type Space string

// The spaces.
const (
	Keys    Space = "keys"
	Publish Space = "publish"
)

// Place is where a key is.
type Place struct {
	Key  string       `json:"key"`
	Node members.Name `json:"node"`
}

// Index tells where keys are. Its methods may be called from any goroutine.
type Index interface {
	// Claim makes keys ours. For each the error is nil, also when it was ours
	// before, or metadata.ErrExist, named with the node that has it.
	Claim(ctx context.Context, s Space, keys []string) []error
	// Release gives keys up, in the background.
	Release(s Space, keys []string)
	// Find says which other node has a key. Errors: metadata.ErrNotExist;
	// coord.ErrUnavailable.
	Find(ctx context.Context, s Space, key string) (Place, error)
	// List lists the keys of other nodes, and our own, behind a key, in order.
	List(ctx context.Context, s Space, after string, limit int) ([]Place, error)
	// Await waits until another node, or we, have the key.
	Await(ctx context.Context, s Space, key string) (Place, error)
}
