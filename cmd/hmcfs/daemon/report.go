package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/transport"
)

// Daemon answers requests of the admin socket.
var _ admin.Backend = (*Daemon)(nil)

// Version returns the version of the program, and its mount point.
func (d *Daemon) Version() adminapi.Version {
	v := VersionOf(d.opts.Version)
	v.MountPoint = d.opts.Places.MountPoint
	return v
}

// VersionOf adds the build information to a version.
func VersionOf(version string) adminapi.Version {
	return adminapi.Version{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Formats: formats()}
}

// Config returns the options of the mount.
func (d *Daemon) Config() []adminapi.Setting { return Settings(d.opts.Settings) }

// Status returns the state of the mount.
func (d *Daemon) Status(ctx context.Context, count bool) (adminapi.Status, error) {
	p, s := d.opts.Places, d.opts.Settings
	files, moved := d.files.Status(), d.engine.Stats()
	program, err := os.Executable()
	if err != nil {
		return adminapi.Status{}, fmt.Errorf("find the program: %w", err)
	}
	out := adminapi.Status{
		Version: d.opts.Version, Program: program, PID: os.Getpid(), UID: d.opts.UID,
		Started: d.started, UptimeSeconds: time.Since(d.started).Seconds(),
		MountPoint: p.MountPoint, StateDir: p.State, RuntimeDir: p.Runtime, Socket: p.Socket(),
		LogFile: d.opts.LogFile, Keep: s.Keep, AllowOther: s.AllowOther, ReadOnly: s.ReadOnly(),
		Passthrough: adminapi.Passthrough{On: files.Passthrough, Reason: files.PassthroughReason},
		Served:      d.opts.NoMount,
		Metrics:     d.metrics.Addr(), HTTP: d.page.Addr(),
		Paths: moved.Paths,
	}
	devs, err := d.store.Devices(ctx)
	if err != nil {
		return adminapi.Status{}, fmt.Errorf("status of the devices: %w", err)
	}
	out.Holder = d.holderStatus()
	if r := d.store.Recovery(); r.Survived > 0 || r.Freed > 0 {
		out.Continued = &adminapi.Continued{Objects: r.Survived, Bytes: r.SurvivedBytes, Freed: r.Freed}
	}
	out.Memory = memory(moved, devs)
	var counted counts
	if count {
		counted = d.count(ctx, devs)
	}
	for _, dev := range devs {
		out.Devices = append(out.Devices, describe(dev, counted))
	}
	if known, cerr := d.Cluster(); cerr == nil {
		out.Cluster = &known
	}
	return out, nil
}

// holderStatus returns nil without a holder, and an empty one if it has ended.
func (d *Daemon) holderStatus() *adminapi.Holder {
	if d.holder == nil {
		return nil
	}
	h, err := d.holder.Status()
	if err != nil {
		return &adminapi.Holder{}
	}
	return &adminapi.Holder{PID: h.PID, Kept: h.Kept, Deaths: h.Deaths, LastDeath: h.LastDeath}
}

func describe(dev objects.DeviceStatus, counted counts) adminapi.Device {
	i := dev.Info
	out := adminapi.Device{
		Name: i.Name, Family: i.Family, Model: i.Model, PCI: i.PCI, NUMA: i.NUMA, Epoch: dev.Epoch,
		Total: dev.Usage.Total, Used: dev.Usage.Used, Free: dev.Usage.Free, Held: dev.Held, FileTier: dev.Passthrough,
		Aside: dev.Aside, AsideUsed: dev.AsideUsed,
		InDaemon: inDaemon(dev),
	}
	if counted != nil {
		c := counted[metadata.DeviceName(i.Name)]
		out.Objects, out.Bound, out.Lost = &c.objects, &c.bound, &c.lost
	}
	return out
}

// inDaemon reports whether a device's memory belongs to the daemon's process. That of the
// host tier belongs to a filesystem.
func inDaemon(dev objects.DeviceStatus) bool {
	return dev.Info.Family == sim.Family || dev.Info.HostMemory && !dev.Passthrough
}

// counts holds the number of files with content, by device.
type counts map[metadata.DeviceName]deviceCount

type deviceCount struct{ objects, bound, lost int }

// countLimit bounds the time of one count; a million files take about a second.
const countLimit = 5 * time.Second

// count counts the objects of each device; it returns nil if that takes too long.
func (d *Daemon) count(ctx context.Context, devs []objects.DeviceStatus) counts {
	ctx, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	epochs := epochsOf(devs)
	out := counts{}
	err := d.meta.Walk(ctx, func(i metadata.Inode) error {
		if !i.IsRegular() {
			return nil
		}
		c := out[i.Device]
		c.objects++
		if i.Bound == metadata.BoundLive {
			c.bound++
		}
		if objects.IsLost(i, epochs[i.Device]) {
			c.lost++
		}
		out[i.Device] = c
		return nil
	})
	if err != nil {
		return nil
	}
	return out
}

func epochsOf(devs []objects.DeviceStatus) map[metadata.DeviceName]metadata.Epoch {
	out := map[metadata.DeviceName]metadata.Epoch{}
	for _, dev := range devs {
		out[metadata.DeviceName(dev.Info.Name)] = metadata.Epoch(dev.Epoch)
	}
	return out
}

// Object returns the location of the bytes of one file.
func (d *Daemon) Object(ctx context.Context, ino metadata.Ino) (adminapi.Object, error) {
	a, err := d.store.Attr(ctx, ino)
	switch {
	case errors.Is(err, metadata.ErrNotExist):
		return adminapi.Object{}, fmt.Errorf("inode %d: %w", ino, admin.ErrNotFound)
	case err != nil:
		return adminapi.Object{}, err
	}
	out := adminapi.Object{
		Ino: ino, Device: a.Device, Size: a.Size, Allocated: a.Allocated, Resident: a.Resident,
		State: string(a.State), Key: a.Key, LastPath: a.Path, Extents: []adminapi.Extent{},
	}
	// An unlinked file that is still open has no path.
	out.Path, _ = d.meta.PathOf(ctx, ino)
	for name, field := range map[string]*string{
		"user.hmc.dtype": &out.Dtype, "user.hmc.shape": &out.Shape, "user.hmc.blobs": &out.Blobs,
	} {
		if value, xerr := d.store.GetXattr(ctx, ino, name); xerr == nil {
			*field = string(value)
		}
	}
	if !a.IsRegular() {
		return out, nil
	}
	out.Exported, out.ExportKind = d.store.Exported(ctx, ino)
	maps, err := d.store.Extents(ctx, ino)
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		return adminapi.Object{}, fmt.Errorf("extents of inode %d: %w", ino, err)
	}
	for _, m := range maps {
		out.Extents = append(out.Extents, adminapi.Extent{
			FileOff: m.FileOff, Len: m.Len, Written: m.Written, Allocation: m.Allocation,
			Off: m.Off, Epoch: m.Epoch, Pinned: m.Pinned,
		})
	}
	return out, nil
}

// configJSON returns the content of .hmcfs/config.
func (d *Daemon) configJSON() ([]byte, error) {
	values := map[string]any{}
	for _, s := range d.Config() {
		values[s.Name] = s.Value
	}
	p := d.opts.Places
	values["state-dir"], values["runtime-dir"], values["socket"] = p.State, p.Runtime, p.Socket()
	values["mount-point"], values["served"] = p.MountPoint, d.opts.NoMount
	return indented(values)
}

// statsJSON returns the content of .hmcfs/stats.
func (d *Daemon) statsJSON() ([]byte, error) {
	devs, err := d.store.Devices(context.Background())
	if err != nil {
		return nil, err
	}
	moved := d.engine.Stats()
	out := map[string]any{
		"transfers": moved, "memory": memory(moved, devs),
		"uptime_seconds": time.Since(d.started).Seconds(),
	}
	var list []adminapi.Device
	for _, dev := range devs {
		list = append(list, describe(dev, nil))
	}
	out["devices"] = list
	if known, cerr := d.Cluster(); cerr == nil {
		out["cluster"] = known
	}
	switch {
	case d.server != nil:
		out["mount"] = d.server.Status()
	case d.opts.NoMount:
		out["files"] = d.files.Status()
	}
	return indented(out)
}

func indented(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}

// memory returns the memory use of this process.
func memory(moved transport.Stats, devs []objects.DeviceStatus) adminapi.Memory {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	out := adminapi.Memory{
		Heap: devices.Size(m.HeapInuse), Pinned: moved.PinnedTotal, Registered: moved.Registered.Bytes,
		Goroutines: runtime.NumGoroutine(),
	}
	if data, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(data)); len(f) > 1 {
			pages, _ := strconv.ParseUint(f[1], 10, 64)
			out.Resident = devices.Size(pages) * devices.Size(os.Getpagesize())
		}
	}
	for _, dev := range devs {
		if inDaemon(dev) {
			out.Devices += dev.Held
		}
	}
	// Memory that is held but was never written is not resident.
	out.Devices = min(out.Devices, out.Resident)
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		out.Files = len(fds)
	}
	return out
}
