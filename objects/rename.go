package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
)

// Rename moves a name. Between devices it copies the content from device to device, and
// is refused with metadata.ErrCrossDevice for a directory, a file with several names,
// one that is open, and an exchange. Only the copy is interrupted when the context ends;
// then nothing has changed. A rename into publish/ publishes a file, and one out of it
// receives a file, see publishFile and receiveFile.
func (s *Store) Rename(ctx context.Context, r metadata.Rename) error {
	return s.RenameAs(ctx, Caller{}, r)
}

// RenameAs is to Rename what UnlinkAs is to Unlink.
func (s *Store) RenameAs(ctx context.Context, who Caller, asked metadata.Rename) error {
	r := renaming{asked, who}
	err := s.access.mayRename(ctx, asked)
	switch {
	case err != nil:
	case r.To == metadata.PublishIno:
		err = s.publications.publishFile(ctx, r)
	case r.From == metadata.PublishIno:
		err = s.publications.receiveFile(ctx, r)
	default:
		whole := context.WithoutCancel(ctx)
		err = s.names.replace(whole, r, func(exact metadata.Rename) (metadata.RenameResult, error) {
			return s.meta.Rename(whole, exact)
		})
		if errors.Is(err, metadata.ErrCrossDevice) && r.Flags&metadata.Exchange == 0 {
			err = s.moves.moveBetween(ctx, r)
		}
	}
	if err != nil {
		return fmt.Errorf("rename %q to %q: %w", r.Name, r.NewName, err)
	}
	return nil
}
