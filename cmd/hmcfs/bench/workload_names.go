package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// entry returns the path of an empty file.
func entry(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("file%06d", i)) }

// MakeFiles creates n empty files in a directory, which must not exist yet.
func MakeFiles(ctx context.Context, dir string, n int) error {
	for i := range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := entry(dir, i)
		fd, err := retry(func() (int, error) {
			return unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		})
		if err != nil {
			return &os.PathError{Op: "create", Path: path, Err: err}
		}
		if err := unix.Close(fd); err != nil {
			return &os.PathError{Op: "close", Path: path, Err: err}
		}
	}
	return nil
}

// RemoveFiles removes the files of MakeFiles.
func RemoveFiles(ctx context.Context, dir string, n int) error {
	for i := range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := entry(dir, i)
		if _, err := retry(func() (int, error) { return 0, unix.Unlink(path) }); err != nil {
			return &os.PathError{Op: "unlink", Path: path, Err: err}
		}
	}
	return nil
}

// CreateUnlink creates n empty files, then removes them, and returns n.
func CreateUnlink(ctx context.Context, dir string, n int) (int64, error) {
	if err := MakeFiles(ctx, dir, n); err != nil {
		return 0, err
	}
	return int64(n), RemoveFiles(ctx, dir, n)
}

// StatFiles reads the attributes of the files of MakeFiles, and returns n.
func StatFiles(ctx context.Context, dir string, n int) (int64, error) {
	var st unix.Stat_t
	for i := range n {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		path := entry(dir, i)
		if _, err := retry(func() (int, error) { return 0, unix.Lstat(path, &st) }); err != nil {
			return 0, &os.PathError{Op: "stat", Path: path, Err: err}
		}
	}
	return int64(n), nil
}

// DropNames makes the kernel drop all cached names and inodes. It needs root, and affects
// the whole machine.
func DropNames() error {
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0)
}

// retry repeats a system call that a signal has interrupted.
func retry(fn func() (int, error)) (int, error) {
	for {
		n, err := fn()
		if err != unix.EINTR { //nolint:errorlint // system calls return unwrapped errors
			return n, err
		}
	}
}
