package admin_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestNoFreeDescriptor connects to a server whose process can open no more files: each client is told so, and is served once there is
// room again.
func TestNoFreeDescriptor(t *testing.T) {
	kit.Check(t)
	socket := serve(t, &backend{}, 0, false)
	const clients = 4
	var fds [8 * clients]int
	for i := range fds {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		fatal(t, err)
		fds[i] = fd
		fatal(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}))
	}
	again, free := kit.FillDescriptors(t)
	told := 0
	for i := 0; i < len(fds) && told < clients && !t.Failed(); i++ {
		fatal(t, unix.Connect(fds[i], &unix.SockaddrUnix{Name: socket}))
		_, err := unix.Write(fds[i], []byte("GET /v1/version HTTP/1.1\r\nHost: hmcfs\r\nConnection: close\r\n\r\n"))
		fatal(t, err)
		switch answer := readAll(t, fds[i]); {
		case strings.HasPrefix(answer, "HTTP/1.1 409 ") && strings.Contains(answer, "as many files open as it may"):
			told++
		case strings.HasPrefix(answer, "HTTP/1.1 200 "):
			again() // what an earlier test had open was closed
		default:
			t.Errorf("a client is answered with %q", answer)
		}
	}
	if told < clients {
		t.Errorf("%d clients were told, want %d", told, clients)
	}
	free()
	for _, fd := range fds {
		fatal(t, unix.Close(fd))
	}
	kit.Eventually(t, time.Minute, func() error {
		if code, body := get(t, socket, http.MethodGet, "/v1/version", ""); code != http.StatusOK {
			return errors.New(body)
		}
		return nil
	})
}

// readAll reads from a descriptor to the end.
func readAll(t *testing.T, fd int) string {
	t.Helper()
	var all strings.Builder
	for b := make([]byte, 4096); ; {
		n, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			t.Errorf("read: %v", err)
			return all.String()
		case n == 0:
			return all.String()
		}
		all.Write(b[:n])
	}
}
