package host

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// Claim records the owner of the files. A tier with files keeps its owner; one without
// accepts a new owner.
func (f files) Claim(owner string) error {
	leave, err := f.d.enter()
	if err != nil {
		return err
	}
	defer leave()
	root := int(f.d.store.root.Fd())
	if now, err := ownerOf(f.d.store.root, f.d.store.path); err != nil || now != "" && now == owner {
		return err
	}
	if err := eachFile(f.d.store, func(string, uint64) error { return errHasFiles }); err != nil {
		if errors.Is(err, errHasFiles) {
			return fmt.Errorf("host tier %s: %w; mount with the state directory to which they belong, or discard them: %s",
				f.d.store.path, devices.ErrForeign, f.d.discard())
		}
		return err
	}
	if err := unix.Unlinkat(root, "owner", 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("host tier %s: %w", f.d.store.path, err)
	}
	if err := unix.Symlinkat(owner, root, "owner"); err != nil {
		return fmt.Errorf("host tier %s: record its owner: %w", f.d.store.path, err)
	}
	return nil
}

// ownerOf returns the owner that has claimed a tier; empty if none has.
func ownerOf(root *os.File, path string) (string, error) {
	var buf [128]byte
	n, err := unix.Readlinkat(int(root.Fd()), "owner", buf[:])
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("host tier %s: read its owner: %w", path, err)
	}
	return string(buf[:n]), nil
}

// errHasFiles ends a listing at the first file.
var errHasFiles = errors.New("host: tier contains files")

// discard returns the command that frees the tier manually.
func (d *Device) discard() string {
	if d.mode == ModeTmpfs {
		return "umount " + d.store.path
	}
	return "rm -r " + d.store.path
}
