package fs

import (
	"context"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// Write is Writev with one piece.
func (f *filesystem) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (written uint32, status fuse.Status) {
	r := f.requests.get()
	defer f.requests.put(r)
	r.pieces[0] = data
	return f.Writev(cancel, in, r.pieces[:])
}

// Writev writes, and returns the number of bytes written if it is not 0: the error of the
// rest is returned by the next write.
//
// A write is on the device when it returns, and under direct I/O the kernel sends the next
// request of a writer only then. So the two do not overlap as they do for reads: on a
// simulated card of 2 GB/s, dd read at 0.97 and wrote at 0.57 GB/s, with requests of 1 MiB
// on two busy cores. Writers of several files overlap.
//
// Errors: EBADF, ENOSPC, EFBIG, EIO; EINTR when a signal arrived before the file's other
// writers were done.
func (f *filesystem) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (written uint32, status fuse.Status) {
	defer f.ops.done(opWrite, time.Now(), &status)
	h, status := f.fileOf(in.Fh)
	if status != fuse.OK {
		return 0, status
	}
	w := objects.Write{
		Off: in.Offset,
		// The pages of a map are written back to where they were read.
		Append:   in.Flags&unix.O_APPEND != 0 && in.WriteFlags&fuse.WRITE_CACHE == 0,
		KillPriv: in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0,
	}
	defer f.changed(h.open.Ino())
	if h.isOther() {
		ctx, done := h.context(cancel, in.Pid)
		defer done()
		return f.writeBeside(ctx, in, h, w, data)
	}
	return f.writeBeside(requestContext(cancel), in, h, w, data)
}

// writeBeside writes, taking stores through maps of the file into account.
func (f *filesystem) writeBeside(ctx context.Context, in *fuse.WriteIn, h *fileHandle, w objects.Write, data [][]byte) (written uint32, status fuse.Status) {
	m := f.mappable.of(metadata.Ino(in.NodeId))
	if m == nil {
		return f.write(ctx, in, h.open, w, data)
	}
	var err error
	if in.WriteFlags&fuse.WRITE_CACHE != 0 {
		status, err = m.writeBack(ctx, w.Off, data, func(data [][]byte) (status fuse.Status) {
			written, status = f.write(ctx, in, h.open, w, data)
			return status
		})
	} else {
		off, n := w.Off, uint64(in.Size)
		if end := h.src.Size(); w.Append && end != off {
			off, n = min(off, end), n+max(off, end)-min(off, end)
		}
		err = m.before(ctx, f.kernel, off, n, func() error {
			written, status = f.write(ctx, in, h.open, w, data)
			return nil
		})
	}
	if err != nil {
		return 0, f.errs.dataStatus(err)
	}
	return written, status
}

func (f *filesystem) write(ctx context.Context, in *fuse.WriteIn, to objects.OpenFile, w objects.Write, data [][]byte) (written uint32, status fuse.Status) {
	for _, piece := range data {
		n, err := to.WriteAt(ctx, piece, w)
		written += uint32(n)
		w.Off += uint64(n)
		if n == len(piece) && err == nil {
			continue
		}
		if written > 0 {
			break
		}
		if err == nil { // a write of nothing would be retried forever
			err = devices.ErrOutOfMemory
		}
		return 0, f.errs.dataStatus(err)
	}
	f.ops.moved(opWrite, &in.Caller, int(written))
	return written, fuse.OK
}
