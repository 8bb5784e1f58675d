package copier_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
)

// part is the range of a file that a test copies.
type part struct {
	off, n int64
}

// check copies and pours a part of a file with a content.
func (c part) check(t *testing.T, src, target string, whole []byte) {
	t.Helper()
	o := copier.Options{Off: c.off, Len: c.n, Buffer: 4096}
	end := int64(len(whole))
	if c.n > 0 {
		end = min(end, c.off+c.n)
	}
	want := whole[c.off:end]
	var told, moved int64
	o.Started, o.Moved = func(n int64) { told = n }, func(n int64) { moved += n }
	if _, err := copier.Copy(t.Context(), []string{src}, target, o); err != nil {
		t.Errorf("%+v: %v", c, err)
	}
	got, err := os.ReadFile(target)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%+v to %s: %d bytes, want %d, or others: %v", c, target, len(got), len(want), err)
	}
	if told != int64(len(want)) || moved > told {
		t.Errorf("%+v: %d of %d bytes were told", c, moved, told)
	}
	var b bytes.Buffer
	n, err := pour(t.Context(), &b, src, o)
	if err != nil || n != int64(len(want)) || !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%+v: %d bytes are poured, or others: %v", c, n, err)
	}
}

// pour writes the bytes of a file.
func pour(ctx context.Context, w io.Writer, source string, o copier.Options) (int64, error) {
	f, err := os.Open(source)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return copier.Drain(ctx, w, copier.Source{Name: source, ReadAt: f.ReadAt, Size: st.Size()}, o)
}

// TestPart copies stretches of a file with a hole, with and without the
// kernel's help, and pours them.
func TestPart(t *testing.T) {
	t.Parallel()
	const size, hole, holeEnd = 300_001, 8192, 65536
	whole := content(size)
	clear(whole[hole:holeEnd])
	for _, dir := range []string{t.TempDir(), elsewhere(t)} {
		src := filepath.Join(t.TempDir(), "src")
		f, err := os.Create(src)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(whole[:hole], 0)
		_, werr := f.WriteAt(whole[holeEnd:], holeEnd)
		if err = errors.Join(err, werr, f.Close()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []part{
			{},
			{off: 1},
			{off: 100, n: 1},
			{off: hole - 1, n: holeEnd - hole + 2},
			{off: hole, n: 100},
			{off: hole + 100, n: 5000},
			{off: size - 1},
			{off: size},
			{off: 70_000, n: size},
		} {
			c.check(t, src, filepath.Join(dir, "target"), whole)
		}
	}
}

func TestNewIsNeverOld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, target := filepath.Join(dir, "src"), filepath.Join(dir, "target")
	write(t, src, content(100))
	write(t, target, content(50))
	if _, err := copier.Copy(t.Context(), []string{src}, target, copier.Options{New: true}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a target that is there: %v", err)
	}
	if got, err := os.ReadFile(target); err != nil || !bytes.Equal(got, content(50)) {
		t.Errorf("the target has changed: %d bytes, %v", len(got), err)
	}
	if _, err := copier.Copy(t.Context(), []string{src}, target+"2", copier.Options{New: true}); err != nil {
		t.Error(err)
	}
	same(t, src, target+"2")
}

// failing is a writer that takes some bytes and then no more.
type failing struct {
	left int
	then func()
}

func (f *failing) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left >= 0 {
		return len(p), nil
	}
	f.then()
	return 0, os.ErrClosed
}

func TestPourFails(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "src")
	write(t, src, content(100_000))
	o := copier.Options{Buffer: 4096}
	n, err := pour(t.Context(), &failing{left: 8192, then: func() {}}, src, o)
	if n != 8192 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("%d bytes, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err = pour(ctx, &failing{left: 8192, then: cancel}, src, o); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	if _, err = pour(t.Context(), &failing{}, src+"2", o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no source: %v", err)
	}
}
