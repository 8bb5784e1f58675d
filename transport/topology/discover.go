package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
)

// Options are the options of Discover.
type Options struct {
	// Root is the tree of sysfs. Default SysRoot.
	Root string
	// Server is the machine's name. It may be empty.
	Server string
	// Devices describes the devices of this machine; those of other machines are
	// in Remotes.
	Devices []devices.Info
	// Peers lists the devices that can access each other directly.
	Peers []Pair
	// Remotes lists the other machines.
	Remotes []Remote
}

// Pair is two devices that can access each other's memory directly.
type Pair struct {
	A devices.Name
	B devices.Name
	// Rank orders all such pairs of the family by speed: 0 is the fastest.
	Rank int
}

// Remote describes another machine, about which little is known here.
type Remote struct {
	Name    string
	Devices []string
	// Shared means that it is a node on this same machine, with shared memory.
	Shared bool
}

// Discover makes the graph of this machine, and of what is known of others.
//
// Errors: ErrFile for devices with the same name; those of reading sysfs.
func Discover(o Options) (*Graph, error) {
	m, err := ReadMachine(cmp.Or(o.Root, SysRoot))
	if err != nil {
		return nil, err
	}
	d := &discovery{o: o, m: m, tree: &tree{m: m}}
	d.numa()
	d.cards()
	for _, i := range o.Devices {
		d.device(i)
	}
	d.tree.build(d)
	d.peers(o.Peers)
	d.nearestNICs()
	d.remotes(o.Remotes)
	return New(d.devices, d.links)
}

// discovery is a graph under construction.
type discovery struct {
	o       Options
	m       *Machine
	tree    *tree
	devices []Device
	links   []Link
}

func numaID(node int) ID { return ID(fmt.Sprintf("numa%d", node)) }

func (d *discovery) add(v Device) {
	v.Server = d.o.Server
	d.devices = append(d.devices, v)
}

func (d *discovery) find(id ID) *Device {
	i := slices.IndexFunc(d.devices, func(v Device) bool { return v.ID == id })
	if i < 0 {
		return nil
	}
	return &d.devices[i]
}

// numa adds the nodes, and the links between them: the kernel's distances are
// relative to access within a node, which is 10.
func (d *discovery) numa() {
	for i, n := range d.m.Nodes {
		v := Device{ID: numaID(n.ID), Kind: NUMANode, NUMA: n.ID}
		if len(n.CPUs) > 0 {
			v.Model = "processors " + FormatCPUs(n.CPUs)
		}
		d.add(v)
		for j := range i {
			l := Link{A: numaID(d.m.Nodes[j].ID), B: v.ID, Class: NUMA, Assumed: true}
			if n.Distances != nil && n.Distances[j] >= 10 {
				typical, _ := NUMA.Typical()
				// Most machines report 20 for a neighbour.
				l.Bandwidth = typical / 1e9 * 20 / float64(n.Distances[j])
				l.Transport = fmt.Sprintf("distance %d", n.Distances[j])
			}
			d.links = append(d.links, l)
		}
	}
}

// home returns the node to which a device without a known place is linked.
func (d *discovery) home(node int) ID {
	if _, is := d.m.Node(node); is {
		return numaID(node)
	}
	return numaID(d.m.Nodes[0].ID)
}

// nicID returns the ID of a network card, whose interface may be named like a device.
func (d *discovery) nicID(c *Card) ID {
	if slices.ContainsFunc(d.o.Devices, func(i devices.Info) bool { return string(i.Name) == c.Name }) {
		return ID("net-" + c.Name)
	}
	return ID(c.Name)
}

func (d *discovery) cards() {
	for i := range d.m.NICs {
		c := &d.m.NICs[i]
		v := Device{ID: d.nicID(c), Kind: NIC, NUMA: c.NUMA, PCI: c.PCI}
		if c.Speed > 0 {
			v.Net = append(v.Net, fmt.Sprintf("%g Gbit/s", c.Speed*8/1e9))
		}
		if c.RDMA != "" {
			v.Net = append(v.Net, "RDMA "+c.RDMA)
		}
		d.add(v)
		d.attach(v.ID, c.PCI, c.NUMA)
	}
}

// device adds a device of this machine.
func (d *discovery) device(i devices.Info) {
	v := Device{ID: ID(i.Name), Kind: Accelerator, NUMA: i.NUMA, PCI: strings.ToLower(i.PCI), Model: i.Model}
	if v.PCI != "" {
		v.Card, _, _ = strings.Cut(v.PCI, ".")
		if v.NUMA < 0 {
			v.NUMA = d.m.nodeOf(v.PCI)
		}
	}
	switch {
	case i.HostMemory && v.PCI == "" && i.Family == hostFamily:
		v.Kind = Host
		d.add(v)
		for _, n := range d.m.Nodes {
			d.links = append(d.links, Link{A: v.ID, B: numaID(n.ID), Class: SHM})
		}
		return
	case v.PCI == "":
		// Memory of the host under another family.
		d.add(v)
		d.links = append(d.links, Link{A: v.ID, B: d.home(v.NUMA), Class: SHM})
		return
	}
	d.add(v)
	d.attach(v.ID, v.PCI, v.NUMA)
}

// hostFamily is the family whose device is the host's memory itself.
const hostFamily devices.Family = "host"

// attach links a device with a bus address: through the PCI tree if the device is
// in it, and otherwise directly to its node.
func (d *discovery) attach(id ID, pci string, node int) {
	if pci == "" || !d.tree.add(id, pci, d.home(node)) {
		d.links = append(d.links, Link{A: id, B: d.home(node), Class: PCIe})
	}
}

// peers links devices that can access each other, and chips of one card.
func (d *discovery) peers(pairs []Pair) {
	joined := map[[2]ID]bool{}
	for _, p := range pairs {
		a, b := d.find(ID(p.A)), d.find(ID(p.B))
		key := [2]ID{min(ID(p.A), ID(p.B)), max(ID(p.A), ID(p.B))}
		if a == nil || b == nil || a.ID == b.ID || joined[key] {
			continue
		}
		joined[key] = true
		l := Link{A: a.ID, B: b.ID, Class: Peer, Assumed: true}
		if a.Card != "" && a.Card == b.Card && a.PCI != b.PCI {
			l.Class = SameCard
		}
		typical, _ := l.Class.Typical()
		l.Bandwidth = typical / 1e9 / float64(1+max(p.Rank, 0))
		d.links = append(d.links, l)
	}
}

// nearestNICs assigns each device its nearest network card: below the same
// switch, then on the same node; among several, the one assigned to the fewest
// devices.
func (d *discovery) nearestNICs() {
	used := map[ID]int{}
	for i := range d.devices {
		v := &d.devices[i]
		if v.Kind != Accelerator && v.Kind != NUMANode {
			continue
		}
		var best *Device
		near := -1
		for j := range d.devices {
			c := &d.devices[j]
			if c.Kind != NIC {
				continue
			}
			n := d.tree.shared(v.PCI, c.PCI) * 2
			if v.NUMA == c.NUMA && v.NUMA >= 0 {
				n++
			}
			if n > near || n == near && used[c.ID] < used[best.ID] {
				best, near = c, n
			}
		}
		if best != nil {
			v.NIC = best.ID
			if v.Kind == Accelerator {
				used[best.ID]++
			}
		}
	}
}

// remotes adds the other machines, connected through the network.
func (d *discovery) remotes(all []Remote) {
	if len(all) == 0 {
		return
	}
	d.devices = append(d.devices, Device{ID: networkID, Kind: Switch, NUMA: -1})
	for i := range d.m.NICs {
		c := &d.m.NICs[i]
		l := Link{A: d.nicID(c), B: networkID, Class: TCP, Bandwidth: c.Speed / 1e9}
		if c.RDMA != "" {
			l.Class = RoCE
		}
		d.links = append(d.links, l)
	}
	if len(d.m.NICs) == 0 {
		d.links = append(d.links, Link{A: d.home(-1), B: networkID, Class: TCP})
	}
	for _, r := range all {
		d.remote(r)
	}
}

func (d *discovery) remote(r Remote) {
	hub := ID(r.Name + "/numa0")
	d.devices = append(d.devices, Device{ID: hub, Kind: NUMANode, Server: r.Name, NUMA: 0})
	if r.Shared {
		d.links = append(d.links, Link{A: d.home(-1), B: hub, Class: SHM})
	} else {
		d.links = append(d.links, Link{A: networkID, B: hub, Class: TCP})
	}
	for _, name := range r.Devices {
		v := Device{ID: ID(r.Name + "/" + name), Kind: Accelerator, Server: r.Name, NUMA: -1}
		l := Link{A: v.ID, B: hub, Class: PCIe}
		if name == string(hostFamily) {
			v.Kind, l.Class = Host, SHM
		}
		d.devices = append(d.devices, v)
		d.links = append(d.links, l)
	}
}
