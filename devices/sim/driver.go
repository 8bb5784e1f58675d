package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/hostmem"
)

// Family is the name of the family in specs.
const Family devices.Family = "sim"

// pageSize is the alignment of allocations, in bytes.
const pageSize = 4 * devices.KiB

// Params are the parameters of a simulated device.
type Params struct {
	// Size is the size of the memory, 1 GiB by default.
	Size devices.Size
	// MaxAlloc is the largest allocation; 0 means Size.
	MaxAlloc devices.Size
	// Bandwidth is the bandwidth of each direction between host and device, in bytes per
	// second; 0 means no limit.
	Bandwidth devices.Size
	// CopyBandwidth is the bandwidth inside the device; 0 means no limit. The spec's
	// default is Bandwidth.
	CopyBandwidth devices.Size
	// Latency is the time before the first byte of each copy.
	Latency time.Duration
	// Mapped selects a device whose memory the host can map.
	Mapped bool
	// Pinned selects a device that accesses host memory directly only if it is registered,
	// as a discrete card does. It can't be combined with Mapped.
	Pinned bool
}

// Driver opens simulated devices. It is stateless.
type Driver struct{}

// NewDriver returns the driver of the family.
func NewDriver() Driver { return Driver{} }

// Family returns "sim".
func (Driver) Family() devices.Family { return Family }

// Discover finds none: simulated devices are created on request.
func (Driver) Discover(context.Context) ([]devices.Found, error) {
	return nil, errors.New("simulated devices exist only on request: --device sim:0,size=1GiB")
}

// Open creates the device that the spec describes, with new memory.
func (Driver) Open(_ context.Context, spec devices.Spec) (devices.Device, error) {
	read := spec.Read()
	p := Params{
		Size:      read.Size("size", devices.GiB),
		MaxAlloc:  read.Size("maxalloc", 0),
		Bandwidth: read.Rate("bandwidth", 0),
		Latency:   read.Duration("latency", 0),
		Mapped:    read.Bool("mapped", false),
		Pinned:    read.Bool("pinned", false),
	}
	p.CopyBandwidth = read.Rate("copybandwidth", p.Bandwidth)
	if err := read.Err(); err != nil {
		return nil, err
	}
	if p.MaxAlloc > p.Size {
		return nil, fmt.Errorf("device %q: maxalloc %v is more than the size %v", spec.Text, p.MaxAlloc, p.Size)
	}
	if p.Mapped && p.Pinned {
		return nil, fmt.Errorf("device %q: mapped memory needs no pinned host memory; omit one of the two", spec.Text)
	}
	return New(spec.Ordinal, p), nil
}

// New creates device simN: a *Device, a *MappedDevice if p.Mapped is set, or a
// *PinnedDevice if p.Pinned is set.
func New(ordinal devices.Ordinal, p Params) devices.Device {
	d := &Device{
		info: devices.Info{
			Name:       devices.Name(fmt.Sprintf("%s%d", Family, ordinal)),
			Family:     Family,
			Ordinal:    ordinal,
			Model:      "simulated device",
			Total:      p.Size,
			MaxAlloc:   p.MaxAlloc,
			Align:      pageSize,
			NUMA:       -1,
			HostMemory: p.Mapped,
		},
		blocks: map[*hostmem.Block]allocation{},
	}
	now := time.Now()
	d.hostToDevice = channel{base: now, rate: p.Bandwidth, latency: p.Latency}
	d.deviceToHost = channel{base: now, rate: p.Bandwidth, latency: p.Latency}
	d.inside = channel{base: now, rate: p.CopyBandwidth, latency: p.Latency}
	d.epoch.Store(uint64(devices.NextEpoch(0)))
	d.self = d
	switch {
	case p.Mapped:
		d.self = &MappedDevice{Device: d}
	case p.Pinned:
		d.self = newPinned(d)
	}
	return d.self
}
