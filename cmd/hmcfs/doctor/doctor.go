package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/affinity"
)

// Level is the severity of a finding.
type Level string

// The levels.
const (
	// OK means as it should be.
	OK Level = "ok"
	// Note means slower than possible, or absent but not needed by a mount.
	Note Level = "note"
	// Problem means that it prevents a mount from working.
	Problem Level = "problem"
)

// Finding is the result of one check.
type Finding struct {
	Area  string `json:"area"`
	Level Level  `json:"level"`
	What  string `json:"what"`
	// Remedy tells the user what to do.
	Remedy string `json:"remedy,omitempty"`
}

// Report holds the results of all checks.
type Report struct {
	Findings []Finding      `json:"findings"`
	Affinity *affinity.Plan `json:"affinity,omitempty"`
	// IRQs holds the interrupts that were moved, with the outcome; nil if that was not
	// requested.
	IRQs []affinity.Result `json:"irqs,omitempty"`
}

// Worst returns the most severe level.
func (r *Report) Worst() Level {
	worst := OK
	for _, f := range r.Findings {
		if f.Level == Problem || f.Level == Note && worst == OK {
			worst = f.Level
		}
	}
	return worst
}

func (r *Report) add(area string, level Level, remedy, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Area: area, Level: level, What: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Machine describes the machine that is checked.
type Machine struct {
	// Root is prepended to every path; empty for this machine.
	Root string
	UID  int
	// Look returns the path of a program.
	Look func(program string) (string, error)
	// Locked is the memory that a process may lock, in bytes, and Files the number of files
	// that it may have open.
	Locked uint64
	Files  uint64
}

// Family describes a device family on the machine.
type Family struct {
	Name    devices.Family
	Devices []devices.Info
	// Reason explains why there is none.
	Reason string
}

func (m *Machine) path(p string) string { return filepath.Join(m.Root, p) }

func (m *Machine) text(p string) string {
	raw, err := os.ReadFile(m.path(p))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// Kernel checks what the kernel must provide.
func (r *Report) Kernel(m *Machine) {
	release := m.text("/proc/sys/kernel/osrelease")
	var major, minor int
	_, err := fmt.Sscanf(release, "%d.%d", &major, &minor) // such as 6.12.9-arch1 or 6.10-rc3
	switch {
	case err != nil:
		r.add("kernel", Note, "mount /proc", "its version is not known")
	case major < 6 || major == 6 && minor < 9:
		r.add("kernel", Note, "use Linux 6.9 or newer", "Linux %s has no FUSE passthrough: files of the host tier go through the daemon", release)
	default:
		r.add("kernel", OK, "", "Linux %s has FUSE passthrough", release)
	}
	f, err := os.OpenFile(m.path("/dev/fuse"), os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close() //nolint:errcheck // it was only opened
		r.add("fuse", OK, "", "/dev/fuse can be opened")
	case errors.Is(err, fs.ErrNotExist):
		r.add("fuse", Problem, "modprobe fuse, start the container with --device /dev/fuse, or do without a mount: hmcfs serve DIR", "there is no /dev/fuse")
	default:
		r.add("fuse", Problem, "run as root, let your user in with chmod 666 /dev/fuse, start the container with --device /dev/fuse, or do without a mount: hmcfs serve DIR", "/dev/fuse can't be opened: %v", err)
	}
	if limit := m.text("/proc/sys/fs/fuse/max_pages_limit"); limit != "" {
		r.add("fuse", OK, "", "requests have up to %s pages (fs.fuse.max_pages_limit)", limit)
	}
}

// capSysAdmin is the bit number of CAP_SYS_ADMIN.
const capSysAdmin = 21

// Privileges checks what the user may do.
func (r *Report) Privileges(m *Machine) {
	may := m.mayMount()
	switch {
	case may:
		r.add("privilege", OK, "", "this process may mount, and hand files to the kernel (CAP_SYS_ADMIN)")
	case m.UID == 0:
		r.add("privilege", Problem, "start the container with --cap-add SYS_ADMIN", "root without CAP_SYS_ADMIN can't mount")
	default:
		if _, err := m.Look("fusermount3"); err != nil {
			r.add("privilege", Problem, "install fuse3, or mount as root", "there is no fusermount3, which users need for mounting")
		} else {
			r.add("privilege", Note, "mount as root for passthrough", "users mount through fusermount3, without passthrough")
		}
		if !slices.Contains(lines(m.text("/etc/fuse.conf")), "user_allow_other") {
			r.add("privilege", Note, "add the line user_allow_other to /etc/fuse.conf", "users can't use --allow-other")
		}
	}
	const least = 64 << 20
	if m.Locked < least && !may {
		r.add("limits", Note, "raise it: ulimit -l unlimited", "only %v of memory may be locked: staging buffers may not get pinned", devices.Size(m.Locked))
	} else {
		r.add("limits", OK, "", "enough memory may be locked")
	}
	const files = 4096
	if m.Files < files {
		r.add("limits", Note, "raise it: ulimit -n 1048576", "only %d files may be open: each open host file uses one", m.Files)
	}
}

func lines(text string) []string {
	var out []string
	for l := range strings.Lines(text) {
		out = append(out, strings.TrimSpace(l))
	}
	return out
}

// mayMount reports whether the process has CAP_SYS_ADMIN.
func (m *Machine) mayMount() bool {
	for _, l := range lines(m.text("/proc/self/status")) {
		if hex, is := strings.CutPrefix(l, "CapEff:"); is {
			caps, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && caps>>capSysAdmin&1 == 1
		}
	}
	return false
}

// Devices reports the devices of each family, and why a family has none.
func (r *Report) Devices(all []Family) {
	cards := 0
	for _, f := range all {
		if len(f.Devices) == 0 {
			if f.Name != "sim" {
				r.add("devices", Note, "", "%s: none, because %s", f.Name, f.Reason)
			}
			continue
		}
		var names []string
		for _, d := range f.Devices {
			text := string(d.Name)
			if d.Model != "" {
				text += " (" + d.Model + ")"
			}
			names = append(names, text)
		}
		if f.Name != "host" {
			cards += len(names)
		}
		r.add("devices", OK, "", "%s: %s", f.Name, strings.Join(names, ", "))
	}
	if cards == 0 {
		r.add("devices", Note, "see hmcfs devices", "no accelerator: a mount has the host tier, and simulated devices on request")
	}
}

// Environment reports whether the options that are set outside the command line are valid.
func (r *Report) Environment(err error) {
	if err == nil {
		r.add("environment", OK, "", "environment variables and config files are valid; hmcfs config show lists them")
		return
	}
	for l := range strings.Lines(err.Error()) {
		r.add("environment", Problem, "see hmcfs config show", "%s", strings.TrimSuffix(strings.TrimSpace(l), "."))
	}
}

// Placement reports where the machine deviates from a plan.
func (r *Report) Placement(p *affinity.Plan) {
	r.Affinity = p
	if p.Idle != "" {
		r.add("numa", OK, "", "%s", p.Idle)
		return
	}
	r.add("numa", OK, "", "%d nodes; a mount keeps the threads of a card on the processors of its node (--numa)", p.Nodes)
	wrong := 0
	for _, q := range p.IRQs {
		if !q.Right && q.CPUs != "" {
			wrong++
		}
	}
	if wrong > 0 {
		r.add("numa", Note, "as root: hmcfs doctor --apply; irqbalance may move them again",
			"%d of %d interrupts of network cards go to processors of other nodes", wrong, len(p.IRQs))
	}
}

// Moved reports the interrupts that were moved.
func (r *Report) Moved(results []affinity.Result) {
	r.IRQs = results
	done := 0
	for _, q := range results {
		if q.Done {
			done++
		}
		if q.Problem != "" {
			r.add("numa", Note, "as root: hmcfs doctor --apply", "interrupt %d of %s was not moved: %s", q.IRQ.Number, q.IRQ.NIC, q.Problem)
		}
	}
	r.add("numa", OK, "", "%d interrupts moved", done)
}

// Threads reports the processors that the threads of a daemon may use.
func (r *Report) Threads(m *Machine, pid int) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(m.path(dir))
	if err != nil {
		r.add("threads", Note, "run as the user of the mount", "the threads of process %d can't be seen: %v", pid, err)
		return
	}
	counts := map[string]int{}
	for _, e := range entries {
		for _, l := range lines(m.text(filepath.Join(dir, e.Name(), "status"))) {
			if list, is := strings.CutPrefix(l, "Cpus_allowed_list:"); is {
				counts[strings.TrimSpace(list)]++
			}
		}
	}
	var texts []string
	for list, n := range counts {
		texts = append(texts, fmt.Sprintf("%d on %s", n, list))
	}
	slices.Sort(texts)
	r.add("threads", OK, "", "process %d has threads: %s", pid, strings.Join(texts, ", "))
}
