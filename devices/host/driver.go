package host

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// Family is the name of the family in specs, and of its only device.
const Family devices.Family = "host"

const pageSize = 4 * devices.KiB

// Options define the location of the tier. Dir is required.
type Options struct {
	// Dir is the runtime directory of this mount of hmcfs. It is created if it does not
	// exist.
	Dir string
	// ID distinguishes this mount from others of the same user in mode quota, where they
	// share a directory. It defaults to Dir.
	ID string
	// SharedMemory is the world-writable tmpfs: /dev/shm by default.
	SharedMemory string
	// Atime is the policy by which reads change a file's access time, in mode tmpfs.
	Atime devices.Atime
	// NoMount makes a new tier use mode quota, even if mounting is permitted.
	NoMount bool
}

// mountFunc is the type of unix.Mount, which tests replace.
type mountFunc func(source, target, fstype string, flags uintptr, data string) error

// Driver opens the host device.
type Driver struct {
	opts  Options
	mount mountFunc
}

// NewDriver returns the family's driver for one mount of hmcfs.
func NewDriver(o Options) *Driver {
	o.ID = cmp.Or(o.ID, o.Dir)
	o.SharedMemory = cmp.Or(o.SharedMemory, "/dev/shm")
	return &Driver{opts: o, mount: unix.Mount}
}

// Family returns "host".
func (d *Driver) Family() devices.Family { return Family }

// Discover returns the machine's memory as the only device.
func (d *Driver) Discover(context.Context) ([]devices.Found, error) {
	mem, err := readMemInfo("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	return []devices.Found{{
		Info:  info(mem.total),
		Usage: devices.Usage{Total: mem.total, Used: mem.total - mem.available, Free: mem.available},
	}}, nil
}

func info(total devices.Size) devices.Info {
	return devices.Info{
		Name:       devices.Name(Family),
		Family:     Family,
		Model:      "pinned host memory",
		Total:      total,
		Align:      pageSize,
		NUMA:       -1,
		HostMemory: true,
	}
}

// Open mounts or adopts the tier of the spec "host[,size=SIZE][,mlock=BOOL]".
//
// Without a size, an adopted tier keeps its own, and a new one gets half of the memory that
// is available at the time. mlock also locks allocations into memory by mlock, for machines
// whose tmpfs may be swapped, and fails if RLIMIT_MEMLOCK does not allow it.
func (d *Driver) Open(ctx context.Context, spec devices.Spec) (devices.Device, error) {
	read := spec.Read()
	size := read.Size("size", 0)
	mlock := read.Bool("mlock", false)
	if err := read.Err(); err != nil {
		return nil, err
	}
	if spec.Ordinal != 0 {
		return nil, fmt.Errorf("device %q: there is only one host; write host,size=4GiB: %w", spec.Text, devices.ErrNoDevice)
	}
	if d.opts.Dir == "" {
		return nil, fmt.Errorf("device %q: no runtime directory is set", spec.Text)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := inMachine(spec, size); err != nil {
		return nil, err
	}
	dev, err := d.open(roundUp(size))
	if err != nil {
		return nil, err
	}
	dev.mlock = mlock
	return dev, nil
}

// inMachine rejects a size that exceeds the machine's memory: a tmpfs accepts any size, and
// fails when it is written to.
func inMachine(spec devices.Spec, size devices.Size) error {
	mem, err := readMemInfo("/proc/meminfo")
	if err != nil {
		return err
	}
	if size > mem.total {
		return fmt.Errorf("device %q: %v requested, the machine has %v of memory; request less, or omit size to use half of the available memory",
			spec.Text, size, mem.total)
	}
	return nil
}

// open tries the modes in order: an existing tier, a new tmpfs, a directory. size 0 means
// the default.
func (d *Driver) open(size devices.Size) (*Device, error) {
	if err := os.MkdirAll(d.opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("host tier: %w", err)
	}
	p, err := d.place()
	if err != nil {
		return nil, err
	}
	var why string
	switch {
	case !p.mounted && d.opts.NoMount:
		why = "mounting is turned off"
	case !p.mounted && p.quotaExists():
		why = "adopted the files that an earlier mount without CAP_SYS_ADMIN left in " + p.quotaDir
	default:
		var dev *Device
		if dev, why, err = d.openTmpfs(p, size); dev != nil || err != nil {
			return dev, err
		}
	}
	dev, err := openQuota(p, size)
	if err != nil {
		return nil, err
	}
	dev.why = why
	return dev, nil
}

func roundUp(n devices.Size) devices.Size { return (n + pageSize - 1) &^ (pageSize - 1) }
