package host

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// numberPrefix begins the names of the empty files whose modification times, in seconds,
// are the numbers. A time can be changed atomically, takes no memory, and unlike a file's
// length is not subject to a limit of the process.
const numberPrefix = "number-"

// Number returns a number that is stored with the files.
func (f files) Number(name string) (uint64, error) {
	leave, err := f.d.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	var st unix.Stat_t
	err = unix.Fstatat(int(f.d.store.root.Fd()), numberPrefix+name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("host tier %s: read number %s: %w", f.d.store.path, name, err)
	}
	return uint64(st.Mtim.Sec), nil
}

// SetNumber stores a number with the files.
func (f files) SetNumber(name string, n uint64) error {
	leave, err := f.d.enter()
	if err != nil {
		return err
	}
	defer leave()
	if n > math.MaxInt64 {
		return fmt.Errorf("host tier %s: number %s is %d: %w", f.d.store.path, name, n, devices.ErrRange)
	}
	root := int(f.d.store.root.Fd())
	err = setNumber(root, numberPrefix+name, n)
	if errors.Is(err, unix.ENOENT) {
		err = makeNumber(root, numberPrefix+name, n)
	}
	if err != nil {
		return fmt.Errorf("host tier %s: store number %s: %w", f.d.store.path, name, err)
	}
	return nil
}

func setNumber(root int, name string, n uint64) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: int64(n)}}
	return unix.UtimesNanoAt(root, name, times, unix.AT_SYMLINK_NOFOLLOW)
}

// makeNumber creates the file of a number, which has the number from the start.
func makeNumber(root int, name string, n uint64) error {
	fresh := name + ".new"
	err := unix.Mknodat(root, fresh, unix.S_IFREG|0o600, 0)
	if err == nil || errors.Is(err, unix.EEXIST) {
		err = setNumber(root, fresh, n)
	}
	if err != nil {
		return err
	}
	return unix.Renameat(root, fresh, root, name)
}
