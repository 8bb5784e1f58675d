package owner

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Adopt makes a file of a descriptor that somebody else has opened, in whatever
// way, and owns it from then on, also when it fails.
//
// It does not ask the file anything. os.NewFile would: a descriptor with
// O_NONBLOCK goes into the runtime's poller, whose epoll asks the file whether
// it is ready, and one of a FUSE filesystem may have a server that never
// answers. Every goroutine of this process would wait for that. The flag is the
// sender's to set at any time. So the file is made of a descriptor of our own,
// and the other one takes its place behind it.
func Adopt(fd int, name string) (*os.File, error) {
	own, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adopt %s: %w", name, err), unix.Close(fd))
	}
	f := os.NewFile(uintptr(own), name)
	err = control(f, func(place int) error { return unix.Dup3(fd, place, unix.O_CLOEXEC) })
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return nil, errors.Join(fmt.Errorf("adopt %s: %w", name, err), f.Close())
	}
	return f, nil
}
