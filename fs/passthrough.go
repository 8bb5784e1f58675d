package fs

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fuseRegistrar is the registrar of a FUSE connection.
type fuseRegistrar struct{ server *fuse.Server }

func (r fuseRegistrar) register(file *os.File) (int32, error) {
	id, errno := r.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(file.Fd())})
	if errno != 0 {
		return 0, fmt.Errorf("register %s as a backing file: %w", file.Name(), errno)
	}
	return id, nil
}

func (r fuseRegistrar) unregister(id int32) error {
	if errno := r.server.UnregisterBackingFd(id); errno != 0 {
		return fmt.Errorf("unregister backing file %d: %w", id, errno)
	}
	return nil
}

// passthroughRefusal explains for the user why the kernel refused.
func passthroughRefusal(err error) string {
	if errors.Is(err, syscall.EPERM) {
		return "the kernel requires CAP_SYS_ADMIN for passthrough; mount as root"
	}
	return fmt.Sprintf("%v; passthrough requires Linux 6.9 or newer", err)
}

// probePassthrough determines before the first open whether the kernel accepts backing
// files, by registering one. It returns the reason if not, else "" and the number that the kernel gave to it.
func probePassthrough(mode PassthroughMode, settings *fuse.InitIn, r registrar) (id int32, reason string) {
	switch {
	case mode == PassthroughOff:
		return 0, "disabled by the option passthrough=off"
	case settings.Flags64()&fuse.CAP_PASSTHROUGH == 0:
		return 0, "this kernel has no FUSE passthrough, which requires Linux 6.9 or newer"
	}
	fd, err := unix.MemfdCreate("hmcfs-probe", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Sprintf("could not create a file to test it with: %v", err)
	}
	file := os.NewFile(uintptr(fd), "memfd:hmcfs-probe")
	defer func() { _ = file.Close() }() // nothing was written to it
	id, err = r.register(file)
	if err == nil {
		err = r.unregister(id)
	}
	if err != nil {
		return 0, passthroughRefusal(err)
	}
	return id, ""
}
