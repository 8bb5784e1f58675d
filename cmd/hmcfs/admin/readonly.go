package admin

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// mayChange returns an error if the mount permits no changes. Those of files are refused by the
// kernel, and by package fs; this is asked for all others.
//
// Errors: hetero.ErrReadOnly.
func (s *Server) mayChange() error {
	if !s.opts.ReadOnly {
		return nil
	}
	return fmt.Errorf("%w: mount it without -o ro to change keys and memory", hetero.ErrReadOnly)
}

// guarded returns a verb that is refused if it changes anything and the mount permits no changes.
// To receive what is published is to read it.
func (s *Server) guarded(name adminapi.Verb, do verb) verb {
	return func(ctx context.Context, c hetero.Client, q *adminapi.Call, out *answer) error {
		if changes(name, q) {
			if err := s.mayChange(); err != nil {
				return err
			}
		}
		return do(ctx, c, q, out)
	}
}

// changes reports whether a call changes keys or the memory behind them.
func changes(name adminapi.Verb, q *adminapi.Call) bool {
	switch name {
	case adminapi.VerbPublish, adminapi.VerbMSet, adminapi.VerbMSetD2H, adminapi.VerbDelete, adminapi.VerbLocalDelete, adminapi.VerbExpire:
		return true
	default:
		return q.Replica
	}
}
