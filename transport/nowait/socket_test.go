package nowait

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestAwait reads bytes that are there, that arrive later, until a deadline, and the end.
func TestAwait(t *testing.T) {
	kit.Check(t)
	a, b := pair(t)
	s, err := NewSocket(a)
	if err != nil {
		t.Fatal(err)
	}
	want, got := kit.Bytes(1, 0, 3000), make([]byte, 3000)
	if n, err := s.Read(got); n != 0 || err != nil {
		t.Errorf("before: %d, %v", n, err)
	}
	if n, err := s.Await(nil); n != 0 || err != nil {
		t.Errorf("no bytes: %d, %v", n, err)
	}
	written := make(chan error, 1)
	go func() {
		for at := 0; at < len(want); at += 500 {
			if _, err := b.Write(want[at : at+500]); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for at := 0; at < len(got); {
		n, err := s.Await(got[at:])
		if n == 0 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		at += n
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if at := kit.FirstDiff(got, want); at >= 0 {
		t.Errorf("byte %d differs", at)
	}
	if err := a.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Await(got); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at the deadline: %d, %v", n, err)
	}
	if err := errors.Join(a.SetReadDeadline(time.Time{}), b.Close()); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Await(got); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %d, %v", n, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Await(got); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %d, %v", n, err)
	}
}

// TestReceiveAndSend reads from a socket in blocking mode, in turn nothing, bytes, and the end; and writes to it.
func TestReceiveAndSend(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	here, there := uintptr(pair[0]), uintptr(pair[1])
	defer func() { _ = unix.Close(pair[0]) }()
	receive := func(fd uintptr, want string, failure error) {
		t.Helper()
		got := make([]byte, 10)
		n, failed := Receive(fd, got)
		if string(got[:max(n, 0)]) != want || !errors.Is(failed, failure) || n < 0 {
			t.Errorf("received %d: %q, %v; not %q, %v", n, got, failed, want, failure)
		}
	}
	send := func(fd uintptr, text string, sent int, failure error) {
		t.Helper()
		if n, failed := Send(fd, []byte(text)); n != sent || !errors.Is(failed, failure) {
			t.Errorf("sent %d, %v; not %d, %v", n, failed, sent, failure)
		}
	}
	receive(here, "", unix.EAGAIN)
	send(here, "question", 8, nil)
	receive(there, "question", nil)
	send(there, "answer", 6, nil)
	receive(here, "answer", nil)
	send(there, "again", 5, nil)
	got := make([]byte, 10)
	if n, failed := ReceivePaged(here, got); string(got[:max(n, 0)]) != "again" || failed != nil {
		t.Errorf("received %d: %q, %v", n, got, failed)
	}
	if err = unix.Close(pair[1]); err != nil {
		t.Fatal(err)
	}
	receive(here, "", nil)
	send(here, "late", 0, unix.EPIPE)
}
