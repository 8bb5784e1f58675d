package host

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

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
func findMount(mountinfo, dir string) (m mountPoint, found bool, err error) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return mountPoint{}, false, fmt.Errorf("read the mount table: %w", err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if at, parsed, ok := parseMount(lines.Text()); ok && at == dir {
			m, found = parsed, true
		}
	}
	if err := lines.Err(); err != nil {
		return mountPoint{}, false, fmt.Errorf("read the mount table: %w", err)
	}
	return m, found, nil
}

// parseMount parses "ID PARENT DEV ROOT DIR OPTIONS … - TYPE SOURCE OPTIONS".
func parseMount(line string) (dir string, m mountPoint, ok bool) {
	left, right, ok := strings.Cut(line, " - ")
	head, tail := strings.Fields(left), strings.Fields(right)
	if !ok || len(head) < 5 || len(tail) < 2 {
		return "", mountPoint{}, false
	}
	m = mountPoint{fsType: tail[0], source: unescape(tail[1])}
	if len(tail) > 2 {
		m.options = strings.Split(tail[2], ",")
	}
	return unescape(head[4]), m, true
}

// unescape decodes the octal escapes in the kernel's output.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
