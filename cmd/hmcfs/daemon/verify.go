package daemon

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/filecollect"
)

// Verify reports whether files have the same bytes.
func (d *Daemon) Verify(ctx context.Context, by objects.Caller, files []*admin.Named) (adminapi.VerifyAnswer, error) {
	out := adminapi.VerifyAnswer{Equal: true, Block: devices.Size(filecollect.VerifyBlock), Different: []adminapi.Different{}}
	inos := make([]metadata.Ino, len(files))
	for i, f := range files {
		err := error(nil)
		if f == nil {
			err = fmt.Errorf("no file: %w", objects.ErrInvalid)
		} else {
			inos[i], err = d.inoOf(ctx, by, f)
		}
		if err != nil {
			return out, &filecollect.RankError{Rank: i, Err: err}
		}
	}
	all, err := filecollect.Verify(ctx, d.store, d.tree, by, inos)
	if err != nil {
		return out, err
	}
	out.Size = devices.Size(all[0].Size)
	for i, f := range all[1:] {
		if f.Blocks > 0 || f.Size != all[0].Size {
			out.Equal = false
			out.Different = append(out.Different, adminapi.Different{
				File: i + 1, Size: devices.Size(f.Size), Block: f.First, Blocks: f.Blocks,
			})
		}
	}
	return out, nil
}
