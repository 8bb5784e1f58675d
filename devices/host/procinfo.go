package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/sysfs"
)

// memInfo contains the kernel's memory statistics.
type memInfo struct {
	total, available devices.Size
}

func readMemInfo(path string) (memInfo, error) {
	all, err := sysfs.MemInfo(path)
	if err != nil {
		return memInfo{}, fmt.Errorf("read the machine's memory: %w", err)
	}
	m := memInfo{total: all["MemTotal"], available: all["MemAvailable"]}
	if m.total == 0 || m.available > m.total {
		return memInfo{}, fmt.Errorf("read the machine's memory: cannot parse %s", path)
	}
	return m, nil
}

// mountPoint is a line of mountinfo.
type mountPoint struct {
	fsType, source string
	// options are those of the file system itself.
	options []string
}

// mountSource is the source of the tier's tmpfs in mountinfo.
const mountSource = "hmcfs-host"

func (m mountPoint) ours() bool { return m.fsType == "tmpfs" && m.source == mountSource }

func (m mountPoint) describe() string { return fmt.Sprintf("%s (%s)", m.source, m.fsType) }

func (m mountPoint) has(option string) bool {
	return slices.Contains(m.options, option)
}

// findMount returns the topmost mount at dir, an absolute path without
// symlinks.
func findMount(dir string) (m mountPoint, found bool, err error) {
	at, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) { return i.Mountpoint != dir, false })
	if err != nil {
		return mountPoint{}, false, fmt.Errorf("read the mount table: %w", err)
	}
	if len(at) == 0 {
		return mountPoint{}, false, nil
	}
	top := at[len(at)-1]
	return mountPoint{fsType: top.FSType, source: top.Source, options: strings.Split(top.VFSOptions, ",")}, true, nil
}
