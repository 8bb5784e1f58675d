package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
)

// rangePiece is the number of bytes requested from one copy_file_range.
const rangePiece = 16 * devices.MiB

// readFile fills p from the start of the file span. Bytes are read, never mapped:
// an access to a mapped page of a full tmpfs is a SIGBUS.
func readFile(p []byte, src Span) error {
	n, err := src.file.ReadAt(p, src.off)
	if n == len(p) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the file ends at %d, %d bytes short: %w: %w", src.off+int64(n), len(p)-n, devices.ErrRange, io.ErrUnexpectedEOF)
	}
	return err
}

// writeFile writes p at the start of the file span.
func writeFile(dst Span, p []byte) error {
	_, err := dst.file.WriteAt(p, dst.off)
	return fileError(err)
}

// fileError maps a full file system, or an exhausted quota, to the out of memory
// error that it is for a host tier. The kernel's errno stays visible.
func fileError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", devices.ErrOutOfMemory, err)
	}
	return err
}

func fileToHost(ctx context.Context, dst []byte, src Span) error {
	return inPieces(ctx, src.n, piece, func(off, n devices.Size) error {
		return readFile(dst[off:off+n], src.sub(off, n))
	})
}

func hostToFile(ctx context.Context, dst Span, src []byte) error {
	return inPieces(ctx, dst.n, piece, func(off, n devices.Size) error {
		return writeFile(dst.sub(off, n), src[off:off+n])
	})
}

// fileToFile lets the kernel copy, and copies the rest itself.
func (e *Engine) fileToFile(ctx context.Context, dst, src Span) error {
	done, err := kernelCopy(ctx, dst, src)
	if err != nil || done == src.n {
		return err
	}
	return e.staged(ctx, dst.sub(done, dst.n-done), src.sub(done, src.n-done))
}

// overlapping reports whether two file spans share bytes of one file.
func overlapping(dst, src *Span) (bool, error) {
	to := devices.Range{Off: devices.Offset(dst.off), Len: dst.n}
	from := devices.Range{Off: devices.Offset(src.off), Len: src.n}
	if !to.Overlaps(from) {
		return false, nil
	}
	if dst.file == src.file {
		return true, nil
	}
	if dst.mapped != nil && src.mapped != nil {
		return dst.mapped.isOfFile(src.mapped), nil
	}
	a, err := inodeOf(dst.file)
	if err != nil {
		return false, err
	}
	b, err := inodeOf(src.file)
	return a == b, err
}

// inodeOf returns the device and the inode of a file, as the kernel numbers them.
func inodeOf(f *os.File) ([2]uint64, error) {
	var st unix.Stat_t
	err := os.NewSyscallError("fstat", unix.Fstat(int(f.Fd()), &st))
	runtime.KeepAlive(f)
	return [2]uint64{uint64(st.Dev), st.Ino}, err
}

// withinFile is memmove inside one file, through one slot.
func (e *Engine) withinFile(ctx context.Context, dst, src Span) error {
	slot, err := e.slots.Get(ctx, min(e.opts.ChunkSize, src.n))
	if err != nil {
		return err
	}
	defer slot.Release()
	if dst.off > src.off {
		return oneByOne(ctx, inPiecesBackward, dst, src, slot)
	}
	return oneByOne(ctx, inPieces, dst, src, slot)
}

// kernelCopy copies as much as copy_file_range can and returns how much that was:
// 0 between two file systems, less than all if the source ends.
func kernelCopy(ctx context.Context, dst, src Span) (done devices.Size, err error) {
	for done < src.n {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		n, err := copyFileRange(dst.sub(done, dst.n-done), src.sub(done, src.n-done))
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.EINVAL),
			errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			return done, nil
		case err != nil:
			return done, fmt.Errorf("copy_file_range: %w", fileError(err))
		case n == 0:
			return done, nil
		}
		done += n
	}
	return done, nil
}

// copyFileRange calls copy_file_range once. It holds both descriptors, so that
// they can't be closed and reused for other files meanwhile.
func copyFileRange(dst, src Span) (devices.Size, error) {
	var copied int
	err := descriptor.Use(dst.file, func(to int) error {
		return descriptor.Use(src.file, func(from int) (err error) {
			copied, err = unix.CopyFileRange(from, &src.off, to, &dst.off, int(min(src.n, rangePiece)), 0)
			return err
		})
	})
	return devices.Size(max(copied, 0)), err
}
