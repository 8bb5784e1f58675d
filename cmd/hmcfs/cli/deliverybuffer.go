package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
)

// deliveryBuffer is memory into which the daemon copies parts of a reserved publication.
// Only one goroutine may use it.
type deliveryBuffer struct {
	c    hetero.Client
	key  string
	file *os.File
	id   hetero.MemoryID
	size devices.Size
}

// newBuffer registers memory for the bytes of a non-empty publication.
func (d *delivery) newBuffer(ctx context.Context) (*deliveryBuffer, error) {
	b := &deliveryBuffer{c: d.c, key: d.row.Key, size: min(deliveryChunk, devices.Size(d.size))}
	var err error
	if b.file, err = share.Sealed("hmcfs-subscribe", b.size); err != nil {
		return nil, fmt.Errorf("allocate memory to receive %q: %w", d.row.Key, err)
	}
	if b.id, err = d.c.PreRegister(ctx, hostMemory(b.file, b.size)); err != nil {
		_ = b.file.Close() // it is empty
		return nil, fmt.Errorf("allocate memory to receive %q: %w", d.row.Key, err)
	}
	return b, nil
}

// hostMemory describes a memfd of this process for a registration.
func hostMemory(f *os.File, size devices.Size) hetero.Memory {
	first := 0
	return hetero.Memory{
		Device: hostDevice, Files: []*os.File{f},
		Share: &share.Memory{
			Family: host.Family, Size: size,
			Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: size}},
		},
	}
}

// read has the daemon copy bytes, at most as many as the buffer's size.
func (b *deliveryBuffer) read(ctx context.Context, p []byte, off int64) (int, error) {
	n := min(len(p), int(b.size))
	list := hetero.DeviceBlobList{
		Device: hostDevice, SourceOffset: off,
		Blobs: []hetero.Blob{{Memory: b.id, Size: devices.Size(n)}},
	}
	if err := b.c.DevFetch(ctx, b.key, list); err != nil {
		return 0, err
	}
	return b.file.ReadAt(p[:n], 0)
}

func (b *deliveryBuffer) close(ctx context.Context) {
	_ = b.c.Unregister(context.WithoutCancel(ctx), b.id) // the session's end does it too
	_ = b.file.Close()                                   // it is not read any more
}
