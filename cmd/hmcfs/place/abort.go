package place

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Abort aborts the connection of a FUSE mount, which may have no name any more: every
// request in progress, and every later one on files that are still open, fails. It needs
// the fusectl filesystem.
func Abort(dev string) error {
	_, minor, _ := strings.Cut(dev, ":")
	path := filepath.Join("/sys/fs/fuse/connections", minor, "abort")
	if err := os.WriteFile(path, []byte("1"), 0); err != nil {
		return fmt.Errorf("abort the connection of the mount: %w", err)
	}
	return nil
}
