package frames_test

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// waited is a Set with two connections.
type waited struct {
	t             *testing.T
	set           *frames.Set
	one, two      io.WriteCloser
	first, second *frames.Conn
}

// numberOfSecond needs both halves of what the kernel keeps.
const numberOfSecond = 1<<40 + 7

func newWaited(t *testing.T, all *frames.Pollers) *waited {
	t.Helper()
	set, err := frames.NewSet(all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	w := &waited{t: t, set: set}
	w.one, w.first = adopted(t, time.Minute)
	w.two, w.second = adopted(t, time.Minute)
	w.must(errors.Join(set.Add(w.first, 1), set.Add(w.second, numberOfSecond)))
	return w
}

func (w *waited) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *waited) await(want ...uint64) {
	w.t.Helper()
	got, err := w.set.Wait(nil)
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		w.t.Fatalf("%d are reported, %v; not %d", got, err, want)
	}
}

func (w *waited) read(c *frames.Conn, want string) {
	w.t.Helper()
	c.Ready()
	p := make([]byte, 8)
	if n, err := c.Read(p); err != nil || string(p[:n]) != want {
		w.t.Fatalf("read %q, %v; not %q", p[:n], err, want)
	}
}

func (w *waited) write(to io.Writer, text string) {
	w.t.Helper()
	_, err := io.WriteString(to, text)
	w.must(err)
}

// TestSet waits for connections: for what has arrived before, while it polls, while a thread waits, and while none does; and for
// the end of one, by the peer and by this side.
func TestSet(t *testing.T) {
	kit.Check(t)
	for name, all := range map[string]*frames.Pollers{"polls": nil, "sleeps": {}} {
		t.Run(name, func(t *testing.T) {
			w := newWaited(t, all)
			w.write(w.one, "a")
			w.write(w.two, "b")
			w.await(1, numberOfSecond)
			w.await(1, numberOfSecond) // until it is read
			w.read(w.first, "a")
			w.await(numberOfSecond)
			w.read(w.second, "b")
			for _, pause := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
				go func() {
					<-time.After(pause)
					_, _ = io.WriteString(w.one, "later") // the read tells
				}()
				w.await(1)
				w.read(w.first, "later")
			}
			w.must(w.set.Remove(w.first))
			w.write(w.one, "unseen")
			w.must(w.two.Close())
			w.await(numberOfSecond)
			w.second.Ready()
			if n, over := w.second.Read(make([]byte, 1)); n != 0 || !errors.Is(over, io.EOF) {
				t.Errorf("after the end: %d, %v", n, over)
			}
			w.must(errors.Join(w.set.Remove(w.second), w.set.Add(w.first, 3)))
			w.await(3)
			w.read(w.first, "unseen")
			go w.first.Shut(unix.SHUT_RDWR)
			w.await(3)
		})
	}
}
