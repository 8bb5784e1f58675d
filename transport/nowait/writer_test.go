package nowait

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// pair is the two ends of a Unix socket.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if a, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

func TestWritesWhatFits(t *testing.T) {
	kit.Check(t)
	a, b := pair(t)
	w, err := NewWriter(a)
	if err != nil {
		t.Fatal(err)
	}
	const size = 16 << 20
	data := kit.Bytes(1, 0, size)
	total := 0
	for {
		n, err := w.Try(data[total:])
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		total += n
	}
	if total == 0 || total == size {
		t.Fatalf("%d of %d bytes without a reader", total, size)
	}
	got := make([]byte, total)
	if _, err := io.ReadFull(b, got); err != nil {
		t.Fatal(err)
	}
	if i := kit.DiffAt(got, 1, 0); i >= 0 {
		t.Errorf("differs at %d", i)
	}
	if !kit.Race() {
		one := []byte{1}
		if n := testing.AllocsPerRun(10, func() { _, _ = w.Try(one) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
	_ = b.Close()
	if _, err := w.Try(data); err == nil {
		t.Error("wrote to nobody")
	}
}

func TestWhatIsNoSocket(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	w, err := NewWriter(a)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Try([]byte("x")); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// Parts arrive as one, and writing them allocates nothing.
func TestParts(t *testing.T) {
	kit.Check(t)
	a, b := pair(t)
	w, err := NewWriter(a)
	if err != nil {
		t.Fatal(err)
	}
	data := kit.Bytes(1, 0, 10_000)
	parts := [][]byte{data[:1], nil, data[1:5000], {}, data[5000:]}
	got := make([]byte, len(data))
	send := func() {
		if n, err := w.TryParts(parts); n != len(data) || err != nil {
			t.Fatal(n, err)
		}
		if _, err := io.ReadFull(b, got); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if i := kit.DiffAt(got, 1, 0); i >= 0 {
		t.Errorf("differs at %d", i)
	}
	if n := testing.AllocsPerRun(100, send); n != 0 && !kit.Race() {
		t.Errorf("%v allocations", n)
	}
	if n, err := w.TryParts([][]byte{nil}); n != 0 || err != nil {
		t.Error(n, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, 30*time.Second, func() bool {
		_, err := w.TryParts(parts)
		return err != nil
	})
}
