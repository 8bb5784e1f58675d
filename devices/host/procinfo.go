package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
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
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return mountPoint{}, false, fmt.Errorf("read the mount table: %w", err)
	}
	defer func() { _ = f.Close() }()
	all, err := Mounts(f)
	if err != nil {
		return mountPoint{}, false, err
	}
	for _, i := range all {
		if i.Mountpoint == dir { // the last one is on top
			m, found = mountPoint{fsType: i.FSType, source: i.Source, options: strings.Split(i.VFSOptions, ",")}, true
		}
	}
	return m, found, nil
}

// Mounts reads a mount table in the form of /proc/self/mountinfo, proc_pid_mountinfo(5). Lines that
// cannot be parsed are left out: a mount of others must not make ours unusable, and the line of an
// overlay of many layers exceeds the bound of the parser.
func Mounts(table io.Reader) ([]*mountinfo.Info, error) {
	var all []*mountinfo.Info
	for lines := bufio.NewReader(table); ; {
		line, err := lines.ReadString('\n')
		if one, perr := mountinfo.GetMountsFromReader(strings.NewReader(line), nil); perr == nil {
			all = append(all, one...)
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the mount table: %w", err)
		}
	}
}
