package fs

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/share"
)

// sharing serves the xattrs bind and handle, by which processes and files share memory.
type sharing struct {
	store  *objects.Store
	guests *guests
	log    *zap.Logger
}

// explained logs why a key is invalid: the caller sees only a number.
func (s *sharing) explained(err error) error {
	if errors.Is(err, metadata.ErrInvalidKey) {
		s.log.Info("could not set a key", zap.Error(err))
	}
	return err
}

// bind makes memory of another process the content of a file. The kernel has
// checked that the caller may write the file.
//
// Errors: EINVAL for a value that is no handle, or a handle of another device; EPERM for
// memory that is not the caller's; EBUSY for a file with content.
func (s *sharing) bind(ino metadata.Ino, who *fuse.Caller, value []byte) error {
	memory, err := share.Parse(value)
	if err == nil {
		err = s.store.Bind(background(), ino, s.guests.callerOf(who), objects.BindRequest{Memory: memory})
	}
	if err != nil {
		// The caller sees only a number; the log has the cause.
		s.log.Info("could not bind memory", zap.Uint64("ino", uint64(ino)), zap.Uint32("uid", who.Uid), zap.Error(err))
	}
	return err
}

// exportHandle names the memory of a file, or of a tensor of it, for another process.
//
// Errors: EPERM for a caller without write permission; EINVAL for an empty file; ENODATA
// for an inode that is no file; EOPNOTSUPP where the device does not support it.
func (s *sharing) exportHandle(ino metadata.Ino, tensor string, who *fuse.Caller) ([]byte, error) {
	a, err := s.store.Attr(background(), ino)
	if err == nil && !a.IsRegular() {
		return nil, metadata.ErrNoXattr
	}
	out, err := s.store.Export(background(), ino, s.guests.callerOf(who), objects.ExportOptions{Tensor: tensor})
	if err != nil {
		s.log.Info("could not export memory", zap.Uint64("ino", uint64(ino)), zap.Uint32("uid", who.Uid), zap.Error(err))
		return nil, err
	}
	return []byte(out.Memory.String()), out.Handle.Close()
}
