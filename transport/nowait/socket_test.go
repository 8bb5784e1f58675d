package nowait

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

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
