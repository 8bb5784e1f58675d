package copier_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
)

// tree writes files of different content and size, and returns their names.
func tree(t *testing.T, dir string, n int) []string {
	t.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("d%d/e%d/f%03d", i%3, i%2, i)
		write(t, filepath.Join(dir, names[i]), content(5000 + 977*i)[i:])
	}
	return names
}

// TestManyFiles copies a tree to new targets, and then over old ones of other sizes and modes, on one file
// system and between two.
func TestManyFiles(t *testing.T) {
	for name, at := range map[string]string{"one file system": t.TempDir(), "two": elsewhere(t)} {
		t.Run(name, func(t *testing.T) {
			src, dst := filepath.Join(t.TempDir(), "src"), filepath.Join(at, "dst")
			names := tree(t, src, 60)
			copyTree(t, src, dst, src, dst, names)
			for i, name := range names { // the next round finds other files
				write(t, filepath.Join(dst, name), content(20000 + i)[1:])
				if err := os.Chmod(filepath.Join(dst, name), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			copyTree(t, src+"/.", dst, src, dst, names)
		})
	}
}

// copyTree copies a directory, and compares the files of src and dst.
func copyTree(t *testing.T, source, target, src, dst string, names []string) {
	t.Helper()
	ended := 0
	s, err := copier.Copy(t.Context(), []string{source}, target, copier.Options{Recursive: true, Ended: func(copier.File) { ended++ }})
	if err != nil || ended != len(names) || len(s.Files) != len(names) || s.Failed != 0 {
		t.Fatalf("%v, %d ended, %d files", err, ended, len(s.Files))
	}
	if !slices.IsSortedFunc(s.Files, func(a, b copier.File) int { return strings.Compare(a.Source, b.Source) }) {
		t.Error("the summary is not in the order of the tree")
	}
	for _, name := range names {
		same(t, filepath.Join(src, name), filepath.Join(dst, name))
		if st, err := os.Stat(filepath.Join(dst, name)); err != nil || st.Mode() != 0o640 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
}

// TestGoesOnAfterAMissingSource checks that the others are copied, and the missing one is reported.
func TestGoesOnAfterAMissingSource(t *testing.T) {
	dir, dst := t.TempDir(), elsewhere(t)
	good, sub := filepath.Join(dir, "good"), filepath.Join(dir, "sub")
	write(t, good, content(100))
	write(t, filepath.Join(sub, "x"), content(100))
	s, err := copier.Copy(t.Context(), []string{filepath.Join(dir, "missing"), sub, good}, dst, copier.Options{})
	if !errors.Is(err, os.ErrNotExist) || s.Failed != 2 || len(s.Files) != 3 || s.Bytes != 100 {
		t.Errorf("%v, %+v", err, s)
	}
	same(t, good, filepath.Join(dst, "good"))
}

// TestTargetsThatAreNoFiles checks that a link is followed, and that a pipe does not make a copy wait.
func TestTargetsThatAreNoFiles(t *testing.T) {
	dir, dst := t.TempDir(), elsewhere(t)
	src, behind := filepath.Join(dir, "a"), filepath.Join(dst, "behind")
	write(t, src, content(1000))
	write(t, behind, content(5))
	if err := errors.Join(os.Symlink("behind", filepath.Join(dst, "a"))); err != nil {
		t.Fatal(err)
	}
	if _, err := copier.Copy(t.Context(), []string{src}, dst, copier.Options{}); err != nil {
		t.Fatal(err)
	}
	same(t, src, behind)
	if st, err := os.Lstat(filepath.Join(dst, "a")); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", st, err)
	}
}

// TestInterruptOfATree ends a copy between two files.
func TestInterruptOfATree(t *testing.T) {
	src, dst := filepath.Join(t.TempDir(), "src"), filepath.Join(elsewhere(t), "dst")
	names := tree(t, src, 40)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := copier.Copy(ctx, []string{src}, dst, copier.Options{Recursive: true, Ended: func(copier.File) { cancel() }})
	if !errors.Is(err, context.Canceled) || s.Failed == 0 || s.Failed >= len(names) {
		t.Fatalf("%v, %d failed", err, s.Failed)
	}
	for _, f := range s.Files {
		_, serr := os.Stat(f.Target)
		switch {
		case f.Err == nil:
			same(t, f.Source, f.Target)
		case !errors.Is(serr, os.ErrNotExist):
			t.Errorf("%s is there: %v", f.Target, f.Err)
		}
	}
}

// archived writes a tree with everything that -a keeps.
func archived(t *testing.T, when time.Time) string {
	t.Helper()
	src := filepath.Join(t.TempDir(), "src")
	dir, file := filepath.Join(src, "d"), filepath.Join(src, "d/a")
	write(t, file, content(5000))
	errs := []error{
		os.Link(file, filepath.Join(src, "hard")), os.Symlink("d/a", filepath.Join(src, "soft")),
		unix.Setxattr(file, "user.note", []byte("kept"), 0), os.Chmod(dir, os.ModeSticky|0o777),
	}
	if os.Geteuid() == 0 {
		errs = append(errs, os.Lchown(file, 12, 34), os.Lchown(filepath.Join(src, "soft"), 12, 34))
	}
	errs = append(errs, os.Chmod(file, os.ModeSetuid|0o751), os.Chtimes(file, when, when), os.Chtimes(dir, when, when))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return src
}

// TestArchive checks what -a keeps.
func TestArchive(t *testing.T) {
	when := time.Date(2020, 2, 3, 4, 5, 6, 789000000, time.UTC)
	for name, at := range map[string]string{"one file system": t.TempDir(), "two": elsewhere(t)} {
		t.Run(name, func(t *testing.T) {
			src := archived(t, when)
			for _, dst := range []string{filepath.Join(at, "dst"), filepath.Join(at, "dst/src")} { // where dst exists, it is in it
				if _, err := copier.Copy(t.Context(), []string{src}, at+"/dst", copier.Options{Recursive: true, Archive: true}); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"d", "d/a", "hard", "soft"} {
					keeps(t, filepath.Join(src, name), filepath.Join(dst, name))
				}
				a, err := os.Stat(filepath.Join(dst, "d/a"))
				b, berr := os.Stat(filepath.Join(dst, "hard"))
				if err = errors.Join(err, berr); err != nil || !os.SameFile(a, b) {
					t.Errorf("the names of one file are two files: %v", err)
				}
			}
		})
	}
}

// TestWithoutPreserve checks that a copy has neither the set-ID bits nor the times of its source.
func TestWithoutPreserve(t *testing.T) {
	when := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	plain := filepath.Join(elsewhere(t), "plain")
	if _, err := copier.Copy(t.Context(), []string{filepath.Join(archived(t, when), "d/a")}, plain, copier.Options{}); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(plain); err != nil || st.Mode() != 0o751 || st.ModTime().Equal(when) {
		t.Errorf("%v, %v", st, err)
	}
}

// keeps compares what an archive keeps of two files.
func keeps(t *testing.T, from, to string) {
	t.Helper()
	a, err := os.Lstat(from)
	b, berr := os.Lstat(to)
	if err = errors.Join(err, berr); err != nil {
		t.Fatal(err)
	}
	x, isX := a.Sys().(*syscall.Stat_t)
	y, isY := b.Sys().(*syscall.Stat_t)
	if !isX || !isY || a.Mode() != b.Mode() || !a.ModTime().Equal(b.ModTime()) || x.Uid != y.Uid || x.Gid != y.Gid {
		t.Errorf("%s: %v %v %d:%d; of the source: %v %v %d:%d", to, b.Mode(), b.ModTime(), y.Uid, y.Gid, a.Mode(), a.ModTime(), x.Uid, x.Gid)
	}
	if !a.Mode().IsRegular() {
		return
	}
	same(t, from, to)
	value := make([]byte, 9)
	n, err := unix.Getxattr(to, "user.note", value)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return // tmpfs has none on older kernels
	}
	if err != nil || string(value[:n]) != "kept" {
		t.Errorf("%s: the attribute is %q, %v", to, value[:max(n, 0)], err)
	}
}
