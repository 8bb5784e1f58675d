package topology

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors that callers distinguish.
var (
	// ErrFile reports a text that describes no topology; the error names each
	// field and its fault.
	ErrFile = errors.New("topology: invalid file")
	// ErrUnknown reports a device that is not in the graph.
	ErrUnknown = errors.New("topology: no such device")
	// ErrNoRoute reports two devices that no links connect.
	ErrNoRoute = errors.New("topology: no route between the devices")
)

// Version is the version of topology.json.
const Version = "1.0"

// The bounds of a graph.
const (
	MaxDevices = 1 << 17
	MaxLinks   = 1 << 21
)

// ID names a device of a graph: "cuda0", "numa1", "eth0", and with the machine's
// name as prefix if there are several: "b/cuda0".
type ID string

// Kind is the kind of a device.
type Kind string

// The kinds.
const (
	// Host is host memory that hmcfs manages as a device.
	Host Kind = "host"
	// Accelerator has memory of its own.
	Accelerator Kind = "accelerator"
	// NUMANode is a set of processors with their memory.
	NUMANode Kind = "numa"
	// Switch joins others: a PCI switch, or a network.
	Switch Kind = "switch"
	// NIC is a network card.
	NIC Kind = "nic"
)

func kinds() []Kind { return []Kind{Host, Accelerator, NUMANode, Switch, NIC} }

// stores reports whether the device receives all bytes before it forwards them.
func (k Kind) stores() bool { return k == Host || k == Accelerator }

// Class is a kind of link, from the fastest to the slowest.
type Class string

// The classes.
const (
	// OnChip is inside one chip.
	OnChip Class = "onchip"
	// SameCard joins chips of one card.
	SameCard Class = "same_card"
	// Peer joins cards directly: NVLink, xGMI, HCCS, or PCI with peer access.
	Peer Class = "peer"
	// PCIe is the path between a card and its host.
	PCIe Class = "pcie"
	// NUMA joins the nodes of one host.
	NUMA Class = "numa"
	// SHM is host memory shared between processes.
	SHM Class = "shm"
	// RoCE is a network that accesses memory directly.
	RoCE Class = "roce"
	// TCP is any other network.
	TCP Class = "tcp"
)

// properties are a class, the values of Typical, and the colour of its links in a picture.
type properties struct {
	class     Class
	bandwidth float64
	latency   time.Duration
	colour    string
}

// classes are all classes, the fastest first.
//
//nolint:gochecknoglobals // a table that never changes
var classes = [...]properties{
	{OnChip, 1000e9, 500 * time.Nanosecond, "#6a1b9a"},
	{SameCard, 200e9, 1500 * time.Nanosecond, "#8e24aa"},
	{Peer, 50e9, 2 * time.Microsecond, "#2e7d32"},
	{PCIe, 12e9, 4 * time.Microsecond, "#1565c0"},
	{NUMA, 20e9, 200 * time.Nanosecond, "#5d4037"},
	{SHM, 10e9, 500 * time.Nanosecond, "#00838f"},
	{RoCE, 10e9, 5 * time.Microsecond, "#ef6c00"},
	{TCP, 1e9, 25 * time.Microsecond, "#c62828"},
}

// Classes returns all classes, the fastest first.
func Classes() (all []Class) {
	for _, p := range classes {
		all = append(all, p.class)
	}
	return all
}

// order returns the index of the class in Classes, -1 for an unknown one.
func (c Class) order() int {
	return slices.IndexFunc(classes[:], func(p properties) bool { return p.class == c })
}

// Typical returns the assumed values for links of the class whose own are
// unknown: the bandwidth in bytes per second, and the time of an empty message.
func (c Class) Typical() (bandwidth float64, latency time.Duration) {
	if i := c.order(); i >= 0 {
		return classes[i].bandwidth, classes[i].latency
	}
	return 0, 0
}

// Device is a vertex of the graph.
type Device struct {
	ID   ID   `json:"id"`
	Kind Kind `json:"kind"`
	// Server is the machine of the device; devices of one machine have the same.
	Server string `json:"server,omitempty"`
	// Card is the same for chips of one card.
	Card string `json:"card,omitempty"`
	// NUMA is the node of the host to which it is attached, -1 if unknown.
	NUMA int `json:"numa"`
	// NIC is the network card nearest to it.
	NIC ID `json:"nic,omitempty"`
	// PCI is its bus address.
	PCI string `json:"pci,omitempty"`
	// Rank is its rank in a rank table.
	Rank *int `json:"rank,omitempty"`
	// Model is for display.
	Model string `json:"model,omitempty"`
	// Net is for display: addresses of a rank, the RDMA device of a card.
	Net []string `json:"net,omitempty"`
}

// Link joins two devices, in both directions.
type Link struct {
	A     ID    `json:"a"`
	B     ID    `json:"b"`
	Class Class `json:"class"`
	// Bandwidth is in 1e9 bytes per second, Latency in µs. 0 in a file means the
	// class's typical value.
	Bandwidth float64 `json:"bw_GBps"`
	Latency   float64 `json:"lat_us"`
	// Transport is for display: "PCIe 16.0 GT/s x16", "UB_CTP".
	Transport string `json:"transport,omitempty"`
	// Assumed means that bandwidth or latency are typical of the class, and not
	// known for this link.
	Assumed bool `json:"assumed,omitempty"`
}

// bytesPerSecond returns the bandwidth.
func (l *Link) bytesPerSecond() float64 { return l.Bandwidth * 1e9 }

// seconds returns the latency.
func (l *Link) seconds() float64 { return l.Latency * 1e-6 }

// Graph holds devices and the links between them, sorted by name.
type Graph struct {
	Version string   `json:"version"`
	Devices []Device `json:"devices"`
	Links   []Link   `json:"links"`

	index map[ID]int
	// from holds the indices of each device's links.
	from [][]int
}

// New makes a graph. It takes ownership of both lists.
//
// Errors: ErrFile, with every fault.
func New(devices []Device, links []Link) (*Graph, error) {
	g := &Graph{Version: Version, Devices: devices, Links: links}
	if err := g.finish(); err != nil {
		return nil, err
	}
	return g, nil
}

// finish checks a graph, fills in unset values of its links, and sorts it.
func (g *Graph) finish() error {
	if len(g.Devices) > MaxDevices || len(g.Links) > MaxLinks {
		return fault("devices", "%d devices and %d links; the limits are %d and %d",
			len(g.Devices), len(g.Links), MaxDevices, MaxLinks)
	}
	slices.SortFunc(g.Devices, func(a, b Device) int { return compareIDs(a.ID, b.ID) })
	g.index = make(map[ID]int, len(g.Devices))
	f := &faults{}
	for i := range g.Devices {
		d := &g.Devices[i]
		if _, twice := g.index[d.ID]; twice {
			f.add("devices", "duplicate id %q", d.ID)
		}
		g.index[d.ID] = i
		d.check(f)
	}
	for i := range g.Links {
		g.Links[i].check(f, g.index)
	}
	if err := f.err(); err != nil {
		return err
	}
	slices.SortFunc(g.Links, compareLinks)
	g.from = make([][]int, len(g.Devices))
	for i := range g.Links {
		for _, end := range []ID{g.Links[i].A, g.Links[i].B} {
			at := g.index[end]
			g.from[at] = append(g.from[at], i)
		}
	}
	return nil
}

func compareLinks(a, b Link) int {
	return cmp.Or(compareIDs(a.A, b.A), compareIDs(a.B, b.B),
		cmp.Compare(a.Class.order(), b.Class.order()),
		-cmp.Compare(a.Bandwidth, b.Bandwidth), cmp.Compare(a.Latency, b.Latency), cmp.Compare(a.Transport, b.Transport))
}

// maxText is the maximum length of a name in a file.
const maxText = 256

func (d *Device) check(f *faults) {
	switch {
	case d.ID == "":
		f.add("devices", "a device has no id")
	case len(d.ID) > maxText:
		f.add("devices", "an id has %d characters; the limit is %d", len(d.ID), maxText)
	case !slices.Contains(kinds(), d.Kind):
		f.add("devices", "%s: unknown kind %q; use %v", d.ID, d.Kind, kinds())
	}
}

// check finds the faults of a link, and sorts its ends.
func (l *Link) check(f *faults, known map[ID]int) {
	for _, end := range []ID{l.A, l.B} {
		if _, is := known[end]; !is {
			f.add("links", "%s to %s: unknown device %q", l.A, l.B, end)
		}
	}
	if l.A == l.B {
		f.add("links", "%s is linked to itself", l.A)
	}
	bandwidth, latency := l.Class.Typical()
	if bandwidth == 0 {
		f.add("links", "%s to %s: unknown class %q; use %v", l.A, l.B, l.Class, Classes())
	}
	// NaN fails both checks.
	if !(l.Bandwidth >= 0 && l.Bandwidth <= 1e6) {
		f.add("links", "%s to %s: bw_GBps %v is not between 0 and 1e6", l.A, l.B, l.Bandwidth)
	}
	if !(l.Latency >= 0 && l.Latency <= 1e9) {
		f.add("links", "%s to %s: lat_us %v is not between 0 and 1e9", l.A, l.B, l.Latency)
	}
	if l.Bandwidth == 0 {
		l.Bandwidth, l.Assumed = bandwidth/1e9, true
	}
	if l.Latency == 0 {
		l.Latency, l.Assumed = float64(latency)/float64(time.Microsecond), true
	}
	if compareIDs(l.A, l.B) > 0 {
		l.A, l.B = l.B, l.A
	}
}

// Device finds a device. Errors: ErrUnknown, which lists the existing devices.
func (g *Graph) Device(id ID) (*Device, error) {
	i, err := g.find(id)
	if err != nil {
		return nil, err
	}
	return &g.Devices[i], nil
}

// listed bounds the devices that an error lists.
const listed = 16

func (g *Graph) find(id ID) (int, error) {
	if i, is := g.index[id]; is {
		return i, nil
	}
	var names []ID
	for i := range g.Devices {
		if len(names) == listed {
			names = append(names, "…")
			break
		}
		names = append(names, g.Devices[i].ID)
	}
	return 0, fmt.Errorf("%w: %q; the devices are %v", ErrUnknown, id, names)
}

// Ranks returns the devices that have a rank, by rank; none for a graph without
// ranks.
//
// Errors: ErrFile for missing or duplicate ranks.
func (g *Graph) Ranks() ([]ID, error) {
	byRank := map[int]ID{}
	for i := range g.Devices {
		d := &g.Devices[i]
		if d.Rank == nil {
			continue
		}
		if other, twice := byRank[*d.Rank]; twice {
			return nil, fault("rank", "%s and %s are both rank %d", other, d.ID, *d.Rank)
		}
		byRank[*d.Rank] = d.ID
	}
	ids := make([]ID, len(byRank))
	for r := range ids {
		id, is := byRank[r]
		if !is {
			return nil, fault("rank", "rank %d is missing", r)
		}
		ids[r] = id
	}
	return ids, nil
}

// Hash distinguishes topologies: it differs if a device or a link differs, or its
// class, bandwidth or latency. Fields for display do not count.
func (g *Graph) Hash() string {
	h := sha256.New()
	put := func(parts ...any) { fmt.Fprintf(h, "%q\n", fmt.Sprint(parts...)) }
	put("topology ", Version)
	for i := range g.Devices {
		d := &g.Devices[i]
		rank := -1
		if d.Rank != nil {
			rank = *d.Rank
		}
		put(d.ID, "\x00", d.Kind, "\x00", d.Server, "\x00", d.Card, "\x00", d.NUMA, " ", rank)
	}
	for i := range g.Links {
		l := &g.Links[i]
		put(l.A, "\x00", l.B, "\x00", l.Class, "\x00", l.Bandwidth, " ", l.Latency)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Encode returns the graph as topology.json.
func (g *Graph) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write topology: %w", err)
	}
	return append(text, '\n'), nil
}

// compareIDs compares names in natural order: cuda2 before cuda10.
func compareIDs(a, b ID) int {
	x, y := string(a), string(b)
	for x != "" && y != "" {
		var p, q string
		p, x = cutRun(x)
		q, y = cutRun(y)
		if p == q {
			continue
		}
		if isDigit(p[0]) && isDigit(q[0]) && len(p) != len(q) {
			return cmp.Compare(len(p), len(q))
		}
		return cmp.Compare(p, q)
	}
	return cmp.Compare(len(x), len(y))
}

// cutRun cuts off the leading digits of a text, or its leading non-digits.
func cutRun(s string) (run, rest string) {
	n := 1
	for n < len(s) && isDigit(s[n]) == isDigit(s[0]) {
		n++
	}
	return s[:n], s[n:]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
