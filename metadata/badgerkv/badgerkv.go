// Package badgerkv is a metadata.KV kept in a directory by Badger.
package badgerkv

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// ErrLocked says that another process has the directory open.
var ErrLocked = errors.New("badgerkv: directory is in use by another process")

// Options are what Open can be told.
type Options struct {
	// Dir is the directory; it is made when missing.
	Dir string
	// Logger receives Badger's messages; nil means they are dropped.
	Logger *zap.Logger
}

// Open opens or creates the store.
func Open(ctx context.Context, opts Options) (metadata.KV, error) { return nil, errors.New("badgerkv: not built yet") }
