package sessions

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
)

// Bytes is the size of the memory of a session.
const Bytes = 1 << 20

// Session is a session with one piece of memory. The caller must close it.
type Session struct {
	*client.Session
	// Device is the device whose objects its keys are.
	Device devices.Name
	Memory []byte
	id     hetero.MemoryID
}

// Open opens a session, and registers its memory.
func Open(ctx context.Context, socket string, device devices.Name) (*Session, error) {
	s, err := client.OpenSession(ctx, socket)
	if err != nil {
		return nil, err
	}
	one := &Session{Session: s, Device: device}
	if one.Memory, one.id, err = one.Register(ctx, Bytes); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return one, nil
}

// Close ends the session, and frees its memory.
func (s *Session) Close() error { return errors.Join(s.Session.Close(), unix.Munmap(s.Memory)) }

// Register registers new memory, which the caller must unmap.
func (s *Session) Register(ctx context.Context, size int) ([]byte, hetero.MemoryID, error) {
	fd, err := unix.MemfdCreate("held", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(fd), "memfd:held")
	defer func() { _ = f.Close() }() // the daemon and the client have their own
	if err = f.Truncate(int64(size)); err != nil {
		return nil, 0, err
	}
	data, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, 0, err
	}
	first, family := 0, devices.Family("host")
	if s.Device != "host" {
		family = "sim"
	}
	id, err := s.PreRegister(ctx, hetero.Memory{
		Device: s.Device, Files: []*os.File{f},
		Share: &share.Memory{
			Family: family, PID: os.Getpid(), Size: devices.Size(size),
			Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: devices.Size(size)}},
		},
	})
	if err != nil {
		return nil, 0, errors.Join(err, unix.Munmap(data))
	}
	return data, id, nil
}

// List returns a range of the session's memory.
func (s *Session) List(off, n int) []hetero.DeviceBlobList { return s.ListOf(s.id, off, n) }

// ListOf returns a range of other memory that the session has registered.
func (s *Session) ListOf(id hetero.MemoryID, off, n int) []hetero.DeviceBlobList {
	return []hetero.DeviceBlobList{{Device: s.Device, Blobs: []hetero.Blob{{Memory: id, Off: devices.Offset(off), Size: devices.Size(n)}}}}
}
