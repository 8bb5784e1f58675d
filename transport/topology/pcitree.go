package topology

import "slices"

// tree holds the relevant PCI devices of a machine, and the bridges between them
// and the host.
type tree struct {
	m     *Machine
	leafs []leaf
}

// leaf is a device of the graph with the path to it.
type leaf struct {
	id ID
	// home is the NUMA node.
	home  ID
	chain []string
}

// add returns false for a device that is not in sysfs.
func (t *tree) add(id ID, pci string, home ID) bool {
	chain := t.m.pciChain(pciDir + "/" + pci)
	if len(chain) == 0 {
		return false
	}
	t.leafs = append(t.leafs, leaf{id: id, home: home, chain: chain})
	return true
}

// shared returns the number of bridges that two devices have in common.
func (t *tree) shared(a, b string) int {
	x, y := t.bridges(a), t.bridges(b)
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	return n
}

func (t *tree) bridges(pci string) []string {
	i := slices.IndexFunc(t.leafs, func(l leaf) bool { return l.chain[len(l.chain)-1] == pci })
	if pci == "" || i < 0 {
		return nil
	}
	return t.leafs[i].chain[:len(t.leafs[i].chain)-1]
}

// build adds the links of all devices, and a switch for each bridge at which the
// paths to two of them diverge. The paths to functions of one device never do.
func (t *tree) build(d *discovery) {
	below := map[string][]string{} // by bridge: the next entries on the paths to devices
	for _, l := range t.leafs {
		for i, bridge := range l.chain[:len(l.chain)-1] {
			if next := l.chain[i+1]; !slices.Contains(below[bridge], next) {
				below[bridge] = append(below[bridge], next)
			}
		}
	}
	made := map[string]bool{}
	for _, l := range t.leafs {
		above, first := l.home, 0
		for i, bridge := range l.chain[:len(l.chain)-1] {
			if len(below[bridge]) < 2 {
				continue
			}
			id := ID("pci-" + bridge)
			if !made[bridge] {
				made[bridge] = true
				node := d.find(l.home)
				d.add(Device{ID: id, Kind: Switch, NUMA: node.NUMA, PCI: bridge})
				d.links = append(d.links, t.link(above, id, l.chain[first:i+1]))
			}
			above, first = id, i+1
		}
		d.links = append(d.links, t.link(above, l.id, l.chain[first:]))
	}
}

// link returns a link as slow as the slowest bridge on its path.
func (t *tree) link(a, b ID, through []string) Link {
	l := Link{A: a, B: b, Class: PCIe}
	for _, pci := range through {
		speed, text := t.m.pciSpeed(pci)
		if speed > 0 && (l.Bandwidth == 0 || speed/1e9 < l.Bandwidth) {
			l.Bandwidth, l.Transport = speed/1e9, text
		}
	}
	if l.Bandwidth > 0 {
		// The latency is unknown, but it hardly matters here.
		_, typical := PCIe.Typical()
		l.Latency = typical.Seconds() * 1e6
	}
	return l
}
