package transport

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
)

// region is a range of a file whose pages are registered for one device, which
// can copy directly from and to them.
//
//	registering ──> ready ──> dropped ──> gone
//	     └── failed ──────────────┘
//
// It is dropped once, which removes it from the table, and gone once, when its
// last user has left and the device has released the pages.
type region struct {
	file   *pinnedFile
	device devices.Device
	epoch  devices.Epoch
	// off and size are whole pages of the file.
	off  uint64
	size devices.Size

	// ready is closed when registering has ended. mem and unpin are set before;
	// mem stays nil if registering failed.
	ready chan struct{}
	mem   []byte
	unpin func()
	// revoked ends when the pages are needed back now.
	revoked context.Context //nolint:containedctx // it is part of the region's own state
	revoke  context.CancelFunc
	// gone is closed when no page is registered or mapped any more.
	gone chan struct{}

	// users, dropped, uncounted and idle are protected by regions.mu.
	users     int
	dropped   bool
	uncounted bool
	idle      *list.Element
}

func newRegion(f *pinnedFile, d devices.Device, off uint64, size devices.Size) *region {
	g := &region{
		file: f, device: d, epoch: d.Epoch(), off: off, size: size,
		ready: make(chan struct{}), gone: make(chan struct{}), users: 1,
	}
	g.revoked, g.revoke = context.WithCancel(context.Background())
	return g
}

func (g *region) end() uint64 { return g.off + uint64(g.size) }

// overlaps reports whether the region holds a byte of [off, end).
func (g *region) overlaps(off, end uint64) bool { return g.off < end && off < g.end() }

// register maps the pages and has the device lock them. They must all exist
// before they are mapped in: a missing page would be a SIGBUS on access while the
// tier is full.
//
// The kernel maps the pages in, without an access, so a page that vanishes
// meanwhile is an error here. They are mapped in for reading, since a write fault
// would change the file's times. The mapping is writable all the same.
func (g *region) register(w want) (err error) {
	pinner, ok := g.device.(devices.Pinner)
	if !ok {
		return devices.ErrUnsupported
	}
	if w.into {
		if err = allocate(w.file, w.off, w.n); err != nil {
			return err
		}
	}
	mem, err := mapFile(w.file, g.off, g.size)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Munmap(mem))
		}
	}()
	if !w.into {
		if err = noHoles(mem); err != nil {
			return err
		}
	}
	if err = unix.Madvise(mem, unix.MADV_POPULATE_READ); err != nil {
		return fmt.Errorf("populate pages of %v of a file: %w", g.size, err)
	}
	unpin, err := pinner.PinHost(mem)
	if err != nil {
		return err
	}
	g.mem, g.unpin = mem, unpin
	return nil
}

func mapFile(f *os.File, off uint64, n devices.Size) (mem []byte, err error) {
	err = descriptor.Use(f, func(fd int) (err error) {
		mem, err = unix.Mmap(fd, int64(off), int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("map %v of a file: %w", n, err)
	}
	return mem, nil
}

// unregister releases the pages. The region has no users any more.
func (g *region) unregister() error {
	g.revoke()
	if g.mem == nil {
		return nil
	}
	g.unpin()
	if err := unix.Munmap(g.mem); err != nil {
		return fmt.Errorf("unmap %v of a file: %w", g.size, err)
	}
	return nil
}

// bytes returns the n bytes of the file from off, for a device only: Go code must
// not touch them.
func (g *region) bytes(off uint64, n devices.Size) []byte {
	from := off - g.off
	return g.mem[from : from+uint64(n) : from+uint64(n)]
}

// holds reports whether the registered pages of a range are still the file's.
// When the kernel takes a page from a file it removes it from every map, and
// nothing accesses this one, so a page that is mapped is the one registered.
//
// This detects changes that bypass the daemon: a program that has mapped the file
// through FUSE passthrough may punch a hole by madvise(MADV_REMOVE).
func (g *region) holds(pages *pagemap, off uint64, n devices.Size) bool {
	page := uint64(os.Getpagesize())
	from, to := (off-g.off)/page*page, (off-g.off+uint64(n)+page-1)/page*page
	return pages.mapped(address(g.mem)+uintptr(from), address(g.mem)+uintptr(to))
}

// want is a stretch of a file that a device is to copy from or to directly.
type want struct {
	device devices.Device
	file   *os.File
	id     FileID
	off    uint64
	n      devices.Size
	// into is true if the device writes the file.
	into bool
}

func (w want) end() uint64 { return w.off + uint64(w.n) }

// errHole reports that a file lacks pages in a range that needs them.
var errHole = errors.New("the file has a hole")

// noHoles checks that the file has every page. SEEK_HOLE would walk to the next
// hole, which is the end of most files, for each region.
func noHoles(mem []byte) error {
	pages := make([]byte, (len(mem)+os.Getpagesize()-1)/os.Getpagesize())
	if err := resident(mem, pages); err != nil {
		return fmt.Errorf("find holes in %d bytes of a file: %w", len(mem), err)
	}
	for _, state := range pages {
		if state&1 == 0 {
			return errHole
		}
	}
	return nil
}

// allocate allocates a file's pages for a range, and extends the file to its end.
func allocate(f *os.File, off uint64, n devices.Size) error {
	return descriptor.Use(f, func(fd int) error { return devices.Fallocate(fd, 0, devices.Offset(off), n) })
}
