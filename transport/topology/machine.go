package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// SysRoot is the directory in which the kernel describes the machine.
const SysRoot = "/sys"

// Machine holds the kernel's description of a machine.
type Machine struct {
	// Nodes lists the NUMA nodes, by number: at least one, since a kernel without
	// NUMA has one in effect.
	Nodes []Node
	// NICs lists the network cards, without virtual ones.
	NICs []Card

	root string
}

// Node is one NUMA node.
type Node struct {
	ID int
	// CPUs are its processors, in ascending order.
	CPUs []int
	// Distances are those to the nodes in the order of Nodes, 10 for itself; none
	// if the kernel does not report them.
	Distances []int
}

// Card is a network card.
type Card struct {
	// Name is the name of its interface: "eth0"; for a card without one, of its
	// RDMA device.
	Name string
	PCI  string
	// NUMA is its node, -1 if unknown.
	NUMA int
	// Speed is in bytes per second, 0 if unknown.
	Speed float64
	// RDMA is the name of its RDMA device, empty if it has none.
	RDMA string
}

// ReadMachine reads the sysfs tree at root. Missing parts are left out.
//
// Errors: those of reading the root itself.
func ReadMachine(root string) (*Machine, error) {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fmt.Errorf("read the devices of this machine: %w", err)
	}
	m := &Machine{root: real}
	m.readNodes()
	m.readNICs()
	return m, nil
}

// Node returns the node with a number.
func (m *Machine) Node(id int) (Node, bool) {
	i := slices.IndexFunc(m.Nodes, func(n Node) bool { return n.ID == id })
	if i < 0 {
		return Node{}, false
	}
	return m.Nodes[i], true
}

func (m *Machine) path(parts ...string) string {
	return filepath.Join(append([]string{m.root}, parts...)...)
}

// text returns the content of a file without its end of line; empty if there is
// none.
func (m *Machine) text(parts ...string) string {
	raw, err := os.ReadFile(m.path(parts...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func (m *Machine) readNodes() {
	const dir = "devices/system/node"
	entries, _ := os.ReadDir(m.path(dir)) // a kernel without NUMA has none
	for _, e := range entries {
		digits, is := strings.CutPrefix(e.Name(), "node")
		id, err := strconv.Atoi(digits)
		if !is || err != nil {
			continue
		}
		n := Node{ID: id}
		n.CPUs, _ = ParseCPUs(m.text(dir, e.Name(), "cpulist"))
		for f := range strings.FieldsSeq(m.text(dir, e.Name(), "distance")) {
			d, _ := strconv.Atoi(f)
			n.Distances = append(n.Distances, d)
		}
		m.Nodes = append(m.Nodes, n)
	}
	slices.SortFunc(m.Nodes, func(a, b Node) int { return a.ID - b.ID })
	if len(m.Nodes) == 0 {
		n := Node{}
		n.CPUs, _ = ParseCPUs(m.text("devices/system/cpu/online"))
		m.Nodes = []Node{n}
	}
	for i := range m.Nodes {
		if len(m.Nodes[i].Distances) != len(m.Nodes) {
			m.Nodes[i].Distances = nil
		}
	}
}

func (m *Machine) readNICs() {
	entries, _ := os.ReadDir(m.path("class/net"))
	rdma := m.readRDMA()
	for _, e := range entries {
		dir := filepath.Join("class/net", e.Name())
		if _, err := os.Stat(m.path(dir, "device")); err != nil {
			continue // virtual
		}
		c := m.card(e.Name(), dir)
		// A card that is down reports -1, or nothing.
		if megabits, err := strconv.ParseFloat(m.text(dir, "speed"), 64); err == nil && megabits > 0 && megabits < 1e8 {
			c.Speed = megabits * 1e6 / 8
		}
		if i := slices.IndexFunc(rdma, func(r Card) bool { return r.PCI != "" && r.PCI == c.PCI }); i >= 0 {
			c.RDMA = rdma[i].RDMA
			c.Speed = max(c.Speed, rdma[i].Speed)
			rdma = slices.Delete(rdma, i, i+1)
		}
		m.NICs = append(m.NICs, c)
	}
	// The remaining ones have no interface: InfiniBand without IP.
	m.NICs = append(m.NICs, rdma...)
	slices.SortFunc(m.NICs, func(a, b Card) int { return compareIDs(ID(a.Name), ID(b.Name)) })
}

// card returns the card of a directory, and its place.
func (m *Machine) card(name, dir string) Card {
	c := Card{Name: name, NUMA: -1}
	if chain := m.pciChain(filepath.Join(dir, "device")); len(chain) > 0 {
		c.PCI = chain[len(chain)-1]
		c.NUMA = m.nodeOf(c.PCI)
	}
	return c
}

func (m *Machine) readRDMA() []Card {
	var out []Card
	entries, _ := os.ReadDir(m.path("class/infiniband"))
	for _, e := range entries {
		dir := filepath.Join("class/infiniband", e.Name())
		c := m.card(e.Name(), dir)
		c.RDMA = c.Name
		// "100 Gb/sec (4X EDR)"
		gigabits, _, _ := strings.Cut(m.text(dir, "ports/1/rate"), " ")
		if v, err := strconv.ParseFloat(gigabits, 64); err == nil && v > 0 && v < 1e5 {
			c.Speed = v * 1e9 / 8
		}
		out = append(out, c)
	}
	return out
}

// isPCIAddress reports whether a part of a path is the address of a PCI device:
// "0000:65:00.0".
func isPCIAddress(part string) bool {
	var domain, bus, device, function uint32
	n, err := fmt.Sscanf(part, "%x:%02x:%02x.%1x", &domain, &bus, &device, &function)
	return err == nil && n == 4 && function < 8 && len(part) >= len("0000:00:00.0") && len(part) <= len("00000000:00:00.0")
}

// pciChain returns the bus addresses from the host to a device, for a path below
// the root that may be a symlink; the last one is the device's own.
func (m *Machine) pciChain(path string) []string {
	real, err := filepath.EvalSymlinks(m.path(path))
	if err != nil {
		return nil
	}
	below, err := filepath.Rel(m.root, real)
	if err != nil || !fs.ValidPath(below) {
		return nil
	}
	return slices.DeleteFunc(strings.Split(below, "/"), func(part string) bool { return !isPCIAddress(part) })
}

const pciDir = "bus/pci/devices"

// nodeOf returns the NUMA node of a PCI device. On a machine with a single node,
// the kernel reports -1.
func (m *Machine) nodeOf(pci string) int {
	id, err := strconv.Atoi(m.text(pciDir, pci, "numa_node"))
	if _, is := m.Node(id); err == nil && is {
		return id
	}
	if len(m.Nodes) == 1 {
		return m.Nodes[0].ID
	}
	return -1
}

// pciSpeed returns the maximum speed of the link from a PCI device to its parent,
// in bytes per second: an idle card slows its link down. 0 means unknown.
func (m *Machine) pciSpeed(pci string) (bytes float64, text string) {
	speed := m.text(pciDir, pci, "max_link_speed")
	rate, _, _ := strings.Cut(speed, " ")
	gigatransfers, err := strconv.ParseFloat(rate, 64)
	width, werr := strconv.Atoi(m.text(pciDir, pci, "current_link_width"))
	if err != nil || werr != nil || gigatransfers <= 0 || gigatransfers > 1000 || width <= 0 || width > 32 {
		return 0, ""
	}
	payload := 128.0 / 130
	if gigatransfers <= 5 {
		payload = 0.8 // 8 bits in 10
	}
	return gigatransfers * 1e9 * float64(width) * payload / 8, fmt.Sprintf("PCIe %s GT/s x%d", rate, width)
}

// maxCPUs bounds the processor numbers that are read.
const maxCPUs = 1 << 14

// ParseCPUs parses a list in the kernel's format: "0-3,8".
func ParseCPUs(list string) ([]int, error) {
	var out []int
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		low, high, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(low)
		b := a
		if ranged && err == nil {
			b, err = strconv.Atoi(high)
		}
		if err != nil || a < 0 || b < a || b >= maxCPUs {
			return nil, errors.New(strconv.Quote(list) + " is not a list of processors")
		}
		for c := a; c <= b; c++ {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// FormatCPUs formats a list as the kernel does.
func FormatCPUs(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(cpus[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", cpus[i], cpus[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
