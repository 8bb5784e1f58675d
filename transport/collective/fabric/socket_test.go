package fabric

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBellIsNotRungForEver: a peer that rings without end does not keep a wakened rank from
// checking anything else.
func TestBellIsNotRungForEver(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[0]), "bell")
	conn, err := net.FileConn(file)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	raw, _ := conn.(*net.UnixConn)
	s, err := newSocket(conn, raw)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	// It rings during each check, so that there is always one more byte.
	peer := os.NewFile(uintptr(fds[1]), "peer")
	defer func() { _ = peer.Close() }()
	if _, err = io.Copy(peer, bytes.NewReader(make([]byte, 6*aheadSize))); err != nil {
		t.Fatal(err)
	}
	if err = (&doorbell{socket: s}).quiet(); err != nil {
		t.Fatal(err)
	}
	if err = s.ahead(); err != nil || s.to == 0 {
		t.Errorf("all %d rings were taken at once, and so would be any number, %v", 6*aheadSize, err)
	}
}
