package owner_test

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/owner"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestAnEndIsConfirmed reads messages of channels whose other end is closed at once: an end
// that the kernel reports before a message is not final.
func TestAnEndIsConfirmed(t *testing.T) {
	kit.Check(t)
	early := 0
	for range kit.Rounds(2000, 5000, 100_000) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() {
			_, werr := unix.Write(fds[1], []byte{7})
			closed <- errors.Join(werr, unix.Close(fds[1]))
		}()
		var p [2]byte
		reads, n := 0, 0
		err = owner.Confirmed(func() (err error) {
			reads++
			// A non-blocking read can hit the moment between the kernel's two checks.
			for n, err = unix.Read(fds[0], p[:]); errors.Is(err, unix.EAGAIN); {
				n, err = unix.Read(fds[0], p[:])
			}
			if err == nil && n == 0 {
				err = io.EOF
			}
			return err
		})
		if n != 1 || p[0] != 7 || err != nil {
			t.Fatalf("%d bytes, %v, in place of the message", n, err)
		}
		early += reads - 1
		if err = errors.Join(<-closed, unix.Close(fds[0])); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("the kernel told an end %d times before a message", early)
}

// TestConfirmed checks how often each kind of end is read.
func TestConfirmed(t *testing.T) {
	other := errors.New("another error")
	for name, c := range map[string]struct {
		reads []error
		want  error
	}{
		"a message":             {[]error{nil}, nil},
		"an end before one":     {[]error{io.EOF, nil}, nil},
		"an end":                {[]error{io.EOF, io.EOF}, io.EOF},
		"an error":              {[]error{other}, other},
		"an end, then an error": {[]error{io.EOF, other}, other},
	} {
		calls := 0
		err := owner.Confirmed(func() error { calls++; return c.reads[calls-1] })
		if !errors.Is(err, c.want) || calls != len(c.reads) {
			t.Errorf("%s: %v after %d reads", name, err, calls)
		}
	}
}
