package owner_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/owner"
)

// TestAdopt: the adopted file is the same open file, and is never added to the runtime's
// poller, although it is non-blocking.
func TestAdopt(t *testing.T) {
	t.Parallel()
	fd, err := unix.Eventfd(7, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f, err := owner.Adopt(fd, "event")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if cerr := f.Close(); cerr != nil {
			t.Error(cerr)
		}
	}()
	if f.Name() != "event" {
		t.Errorf("its name is %q", f.Name())
	}
	if polled(t, int(f.Fd())) {
		t.Error("the poller has it")
	}
	again, err := owner.Duplicate(f)
	if err != nil {
		t.Fatal(err)
	}
	if polled(t, int(again.Fd())) {
		t.Error("the poller has its duplicate")
	}
	p := make([]byte, 8)
	if n, err := unix.Read(int(again.Fd()), p); n != 8 || err != nil || p[0] != 7 {
		t.Errorf("read %d bytes %v: %v", n, p, err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := owner.Adopt(-1, "none"); err == nil {
		t.Error("no descriptor was adopted")
	}
}

// polled reports whether a descriptor is in an epoll set of this process.
func polled(t *testing.T, fd int) bool {
	t.Helper()
	links, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", l.Name()))
		if err != nil || to != "anon_inode:[eventpoll]" {
			continue // it may have been closed
		}
		info, err := os.ReadFile(filepath.Join("/proc/self/fdinfo", l.Name()))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(info)) {
			fields := strings.Fields(line)
			if len(fields) > 1 && fields[0] == "tfd:" && fields[1] == strconv.Itoa(fd) {
				return true
			}
		}
	}
	return false
}
