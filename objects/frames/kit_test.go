package frames_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// pair connects two Unix sockets.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/socket"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if a, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: l.Addr().String(), Net: "unix"}); err == nil {
		b, err = l.AcceptUnix()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// readAll sends bytes through a connection, some of them after pauses, and reads them, and the end.
func readAll(t *testing.T, a *net.UnixConn, in io.Reader) {
	t.Helper()
	want := kit.Bytes(7, 0, 300_000)
	sent := make(chan error, 1)
	go func() {
		var failed error
		for off, n := 0, 1; off < len(want) && failed == nil; off, n = off+n, min(3*n, len(want)-off-n) {
			_, failed = a.Write(want[off : off+n])
			if off%2 == 0 {
				<-time.After(5 * time.Millisecond) // longer than a thread waits
			}
		}
		sent <- errors.Join(failed, a.CloseWrite())
	}()
	got, err := io.ReadAll(in)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
	if err = <-sent; err != nil {
		t.Error(err)
	}
	if n, over := in.Read(make([]byte, 1)); n != 0 || !errors.Is(over, io.EOF) {
		t.Errorf("behind the end: %d, %v", n, over)
	}
}
