package host

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/hmcfs/hmcfs/devices"
)

// memInfo contains the kernel's memory statistics.
type memInfo struct {
	total, available devices.Size
}

func readMemInfo(path string) (memInfo, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return memInfo{}, fmt.Errorf("read the machine's memory: %w", err)
	}
	var m memInfo
	for line := range strings.Lines(string(text)) {
		var kib uint64
		if _, err := fmt.Sscanf(line, "MemTotal: %d kB", &kib); err == nil {
			m.total = devices.Size(kib) * devices.KiB
		}
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); err == nil {
			m.available = devices.Size(kib) * devices.KiB
		}
	}
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
