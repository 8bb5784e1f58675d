package badgerkv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
)

// RoomToOpen returns an error if there is no space for opening the records again after the death of the process
// that has them open. It changes nothing.
//
// Errors: metadata.ErrNoSpace, which names the directory; errors of the operating system.
func RoomToOpen(opts Options) error {
	dir, err := os.Open(opts.Dir)
	if err != nil {
		return err
	}
	if err = errors.Join(enoughToOpen(opts, dir), dir.Close()); err != nil || opts.Witness == "" {
		return err
	}
	var st unix.Statfs_t
	at := filepath.Dir(opts.Witness)
	if err = unix.Statfs(at, &st); err != nil {
		return fmt.Errorf("look for space in %s: %w", at, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < witnessSize {
		return fmt.Errorf("%w: the file system of %s has %s free, and the witness of the records takes %s; free some space there",
			metadata.ErrNoSpace, at, humanize.IBytes(free), humanize.IBytes(witnessSize))
	}
	return nil
}
