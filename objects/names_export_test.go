package objects

import (
	"context"

	"github.com/hmcfs/hmcfs/metadata"
)

// RenameAfter renames within a device, and calls meantime after the names have been looked up.
func (s *Store) RenameAfter(ctx context.Context, who Caller, r metadata.Rename, meantime func()) error {
	return s.names.replace(ctx, renaming{r, who}, func(exact metadata.Rename) (metadata.RenameResult, error) {
		meantime()
		return s.meta.Rename(ctx, exact)
	})
}
