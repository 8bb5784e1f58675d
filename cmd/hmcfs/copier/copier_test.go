package copier_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
)

func content(n int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	p := make([]byte, n)
	_, _ = r.Read(p)
	return p
}

func write(t *testing.T, path string, p []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, p, 0o640); err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, a, b string) {
	t.Helper()
	pa, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	pb, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(pa, pb) {
		t.Errorf("%s (%d bytes) and %s (%d bytes) differ", a, len(pa), b, len(pb))
	}
}

// elsewhere is a directory of another file system than the test's own, so
// that the kernel can't copy by itself.
func elsewhere(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "copier-") //nolint:usetesting // it must be on tmpfs, wherever t.TempDir is
	if err != nil {
		t.Skip("no second file system: ", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestSizes(t *testing.T) {
	for name, target := range map[string]string{"one file system": t.TempDir(), "two": elsewhere(t)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, n := range []int{0, 1, 4095, 4096, 100_000, 1<<20 - 1, 3<<20 + 7} {
				src, dst := filepath.Join(dir, "src"), filepath.Join(target, "dst")
				write(t, src, content(n))
				if err := os.Chmod(src, 0o751); err != nil {
					t.Fatal(err)
				}
				var total, moved int64
				s, err := copier.Copy(t.Context(), []string{src}, dst, copier.Options{
					Buffer:  64 << 10,
					Started: func(n int64) { total = n }, Moved: func(n int64) { moved += n },
				})
				if err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
				same(t, src, dst)
				if s.Bytes != int64(n) || total != int64(n) || moved != int64(n) || len(s.Files) != 1 {
					t.Errorf("%d bytes: total %d, moved %d, summary %+v", n, total, moved, s)
				}
				if st, err := os.Stat(dst); err != nil || st.Mode() != 0o751 {
					t.Errorf("mode %v, %v", st.Mode(), err)
				}
			}
		})
	}
}

func TestHolesStayHoles(t *testing.T) {
	const size = 16 << 20
	src, dst := filepath.Join(elsewhere(t), "src"), filepath.Join(t.TempDir(), "dst")
	f, err := os.Create(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{1 << 20, 9 << 20} {
		if _, err = f.WriteAt(content(8192), off); err != nil {
			t.Fatal(err)
		}
	}
	if err = errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	write(t, dst, content(20<<20))
	s, err := copier.Copy(t.Context(), []string{src}, dst, copier.Options{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, src, dst)
	st, err := os.Stat(dst)
	if err != nil {
		t.Fatal(err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no blocks to count")
	}
	if blocks := sys.Blocks; blocks*512 > size/4 || s.Bytes > size/4 {
		t.Errorf("%d bytes copied, %d blocks taken", s.Bytes, blocks)
	}
}

func TestTree(t *testing.T) {
	src, dst := filepath.Join(t.TempDir(), "src"), t.TempDir()
	write(t, filepath.Join(src, "a/b/c"), content(5000))
	write(t, filepath.Join(src, "d"), content(10))
	if err := errors.Join(os.Symlink("a/b/c", filepath.Join(src, "link")), os.Chmod(filepath.Join(src, "a/b"), 0o555),
		syscall.Mkfifo(filepath.Join(src, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		s, err := copier.Copy(t.Context(), []string{src}, dst, copier.Options{Recursive: true})
		if err == nil || !strings.Contains(err.Error(), "neither file, directory nor link") || s.Failed != 1 {
			t.Fatalf("round %d: %v, %+v", round, err, s)
		}
		same(t, filepath.Join(src, "a/b/c"), filepath.Join(dst, "src/a/b/c"))
		same(t, filepath.Join(src, "d"), filepath.Join(dst, "src/d"))
		if text, err := os.Readlink(filepath.Join(dst, "src/link")); err != nil || text != "a/b/c" {
			t.Errorf("link %q, %v", text, err)
		}
		if st, err := os.Stat(filepath.Join(dst, "src/a/b")); err != nil || st.Mode().Perm() != 0o555 {
			t.Errorf("mode of a directory: %v, %v", st, err)
		}
	}
	_ = os.Chmod(filepath.Join(src, "a/b"), 0o755)
	_ = os.Chmod(filepath.Join(dst, "src/a/b"), 0o755)
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	file, other, sub := filepath.Join(dir, "file"), filepath.Join(dir, "other"), filepath.Join(dir, "sub")
	write(t, file, content(100))
	write(t, other, content(50))
	if err := errors.Join(os.Mkdir(sub, 0o755), os.Link(file, filepath.Join(dir, "hard")), os.Symlink(file, filepath.Join(dir, "soft"))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sources []string
		target  string
		r       bool
		want    string
	}{
		{[]string{file}, file, false, "are the same file"},
		{[]string{file}, dir, false, "are the same file"},
		{[]string{file}, filepath.Join(dir, "hard"), false, "are the same file"},
		{[]string{file}, filepath.Join(dir, "soft"), false, "are the same file"},
		{[]string{file, other}, filepath.Join(dir, "none"), false, "is not a directory; several sources need one"},
		{[]string{sub}, filepath.Join(dir, "x"), false, "copy it with -r"},
		{[]string{file}, filepath.Join(dir, "none") + "/", false, "mkdir"},
		{[]string{sub}, filepath.Join(sub, "x"), true, "would never end"},
		{[]string{sub}, file, true, "is not"},
		{[]string{filepath.Join(dir, "none")}, other, false, "no such file"},
	} {
		_, err := copier.Copy(t.Context(), c.sources, c.target, copier.Options{Recursive: c.r})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v to %s: %v, want %q", c.sources, c.target, err, c.want)
		}
	}
	if p, err := os.ReadFile(file); err != nil || !bytes.Equal(p, content(100)) {
		t.Errorf("the source has changed: %d bytes, %v", len(p), err)
	}
}

func TestInterrupt(t *testing.T) {
	const size = 8 << 20
	for name, c := range map[string]struct {
		existed bool
		want    string
	}{"new target": {false, "is removed"}, "old target": {true, "is truncated to the"}} {
		t.Run(name, func(t *testing.T) {
			src, dst := filepath.Join(t.TempDir(), "src"), filepath.Join(elsewhere(t), "dst")
			write(t, src, content(size))
			if c.existed {
				write(t, dst, content(size+5))
			}
			ctx, cancel := context.WithCancel(t.Context())
			_, err := copier.Copy(ctx, []string{src}, dst, copier.Options{
				Buffer: 1 << 20, Moved: func(int64) { cancel() },
			})
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v", err)
			}
			p, err := os.ReadFile(dst)
			if !c.existed {
				if !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the target is there: %d bytes, %v", len(p), err)
				}
				return
			}
			if err != nil || len(p) == size || !bytes.Equal(p, content(size)[:len(p)]) {
				t.Errorf("target of %d bytes, %v", len(p), err)
			}
		})
	}
}

func TestOneOfTwoFails(t *testing.T) {
	dir, dst := t.TempDir(), t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, content(10))
	write(t, b, content(20))
	s, err := copier.Copy(t.Context(), []string{a, b}, dst, copier.Options{Started: func(int64) { _ = os.Remove(b) }})
	if err == nil || s.Failed != 1 || len(s.Files) != 2 || s.Files[1].Fault == "" || s.Bytes != 10 {
		t.Errorf("%v, %+v", err, s)
	}
}

func TestForceReplacesWhatCantBeOpened(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can open everything")
	}
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	write(t, src, content(10))
	write(t, dst, content(20))
	if err := os.Chmod(dst, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := copier.Copy(t.Context(), []string{src}, dst, copier.Options{}); err == nil {
		t.Error("copied to a file that can't be opened")
	}
	if _, err := copier.Copy(t.Context(), []string{src}, dst, copier.Options{Force: true}); err != nil {
		t.Error(err)
	}
}
