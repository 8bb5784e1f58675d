package owner

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Adopt makes an *os.File of a descriptor that another process has opened, in any mode, and owns
// it from then on, even if it fails.
//
// It performs no operation on the file. os.NewFile would: a descriptor with O_NONBLOCK goes into
// the runtime's poller, whose epoll asks the file whether it is ready, and a file of a FUSE
// filesystem may have a server that never answers. Every goroutine of this process would wait
// for that. The sender can set the flag at any time. So the *os.File is made of a descriptor
// opened here, which the adopted one then replaces.
func Adopt(fd int, name string) (*os.File, error) {
	own, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adopt %s: %w", name, err), unix.Close(fd))
	}
	f := os.NewFile(uintptr(own), name)
	err = Control(f, func(place int) error { return unix.Dup3(fd, place, unix.O_CLOEXEC) })
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return nil, errors.Join(fmt.Errorf("adopt %s: %w", name, err), f.Close())
	}
	return f, nil
}
