package affinity

import (
	"net"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/topology"
)

// Pinner puts threads on the processors of NUMA nodes. It does not change once
// made; a nil Pinner does nothing.
type Pinner struct {
	nodes map[int]unix.CPUSet
	cards map[string]int
}

// NewPinner makes a pinner for a machine; it returns nil if there is nothing to
// choose.
func NewPinner(m *topology.Machine) *Pinner {
	if len(m.Nodes) < 2 {
		return nil
	}
	p := &Pinner{nodes: map[int]unix.CPUSet{}, cards: map[string]int{}}
	for _, n := range m.Nodes {
		var set unix.CPUSet
		for _, c := range n.CPUs {
			set.Set(c)
		}
		p.nodes[n.ID] = set
	}
	for i := range m.NICs {
		p.cards[m.NICs[i].Name] = m.NICs[i].NUMA
	}
	return p
}

// Enter keeps the calling goroutine on the processors of a node until it calls
// leave, on the same goroutine. Calls may be nested. It does nothing for a node
// that is unknown, or has no processor that the process may use.
func (p *Pinner) Enter(node int) (leave func()) {
	if p == nil {
		return stay
	}
	set, is := p.nodes[node]
	if !is {
		return stay
	}
	runtime.LockOSThread()
	var before unix.CPUSet
	if unix.SchedGetaffinity(0, &before) != nil || !common(&set, &before) || unix.SchedSetaffinity(0, &set) != nil {
		runtime.UnlockOSThread()
		return stay
	}
	return func() {
		// This set was allowed before, so it is still, unless the process was
		// moved meanwhile: then the kernel's choice is as good.
		_ = unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	}
}

func stay() {}

// common removes from set what is not in other, and reports whether anything is
// left.
func common(set, other *unix.CPUSet) bool {
	for i := range set {
		set[i] &= other[i]
	}
	return set.Count() > 0
}

// Near returns the node of the network card that has an address of this machine,
// or -1 if unknown, as for a virtual interface.
func (p *Pinner) Near(local netip.Addr) int {
	if p == nil || !local.IsValid() || local.IsLoopback() {
		return -1
	}
	all, err := net.Interfaces()
	if err != nil {
		return -1
	}
	for _, i := range all {
		node, is := p.cards[i.Name]
		if !is {
			continue
		}
		addrs, _ := i.Addrs() // an interface that is being removed has none
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err == nil && prefix.Addr().Unmap() == local.Unmap() {
				return node
			}
		}
	}
	return -1
}
