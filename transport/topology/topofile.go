package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The bounds of a topology file of version 2.0.
const (
	maxPeers     = 65
	maxEdgePorts = 64
)

// topoFile is a topology file of version 2.0: the cards of one machine.
type topoFile struct {
	Version   text    `json:"version"`
	PeerCount *number `json:"peer_count"`
	Peers     []struct {
		LocalID *number `json:"local_id"`
	} `json:"peer_list"`
	EdgeCount *number `json:"edge_count"`
	Edges     []edge  `json:"edge_list"`
}

type edge struct {
	LinkType  string   `json:"link_type"`
	Protocols []string `json:"protocols"`
	Type      string   `json:"topo_type"`
	Instance  number   `json:"topo_instance_id"`
	A         *number  `json:"local_a"`
	APorts    []string `json:"local_a_ports"`
	B         *number  `json:"local_b"`
	BPorts    []string `json:"local_b_ports"`
	Position  string   `json:"position"`
}

func protocols() []string {
	return []string{"UB_CTP", "UB_TP", "ROCE", "HCCS", "PCIE", "TCP", "UB_MEM", "UBOE", "UB_RTP"}
}

func topoTypes() []string {
	return []string{"", "CLOS", "1DMESH", "2DMESH", "A3_SERVER", "A2_AX_SERVER"}
}

func parseTopoFile(raw []byte) (*Graph, error) {
	var t topoFile
	if err := decode(raw, &t, false); err != nil {
		return nil, err
	}
	f := &faults{}
	if t.Version != "2.0" {
		f.add("version", "%q must be \"2.0\"", string(t.Version))
	}
	checkCount(f, "peer", t.PeerCount, len(t.Peers))
	checkCount(f, "edge", t.EdgeCount, len(t.Edges))
	if len(t.Peers) < 1 || len(t.Peers) > maxPeers {
		f.add("peer_count", "%d peers; use 1 to %d", len(t.Peers), maxPeers)
	}
	b := &topoBuilder{faults: f, known: map[number]bool{}, nets: map[ID]bool{}, links: map[[2]ID]Link{}}
	for i, p := range t.Peers {
		at := fmt.Sprintf("peer_list[%d].local_id", i)
		switch {
		case p.LocalID == nil || *p.LocalID < 0 || *p.LocalID >= maxPeers:
			f.add(at, "is missing, or not between 0 and %d", maxPeers-1)
		case b.known[*p.LocalID]:
			f.add(at, "duplicate %d", *p.LocalID)
		default:
			b.known[*p.LocalID] = true
			b.devices = append(b.devices, Device{ID: cardID(*p.LocalID), Kind: Accelerator, NUMA: -1})
		}
	}
	for i := range t.Edges {
		b.edge(fmt.Sprintf("edge_list[%d]", i), &t.Edges[i])
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return New(b.devices, slices.Collect(maps.Values(b.links)))
}

func checkCount(f *faults, what string, count *number, n int) {
	switch {
	case count == nil:
		f.add(what+"_count", "is missing")
	case int(*count) != n:
		f.add(what+"_count", "is %d, but %s_list has %d", *count, what, n)
	}
}

func cardID(local number) ID { return ID(fmt.Sprintf("npu%d", local)) }

// topoBuilder builds the graph of a topology file.
type topoBuilder struct {
	faults  *faults
	known   map[number]bool
	nets    map[ID]bool
	devices []Device
	// links holds the fastest link between each two ends: duplicate edges are
	// merged.
	links map[[2]ID]Link
}

func (b *topoBuilder) edge(at string, e *edge) {
	b.check(at, e)
	if e.A == nil || !b.known[*e.A] {
		b.faults.add(at+".local_a", "is missing, or not in peer_list")
		return
	}
	a := cardID(*e.A)
	switch e.LinkType {
	case "PEER2PEER":
		switch {
		case e.B == nil || !b.known[*e.B]:
			b.faults.add(at+".local_b", "is missing, or not in peer_list")
		case *e.B == *e.A:
			b.faults.add(at+".local_b", "%d is also local_a", *e.B)
		case len(e.BPorts) == 0:
			b.faults.add(at+".local_b_ports", "is empty")
		default:
			b.link(a, cardID(*e.B), e.Protocols)
		}
	case "PEER2NET":
		net := ID(fmt.Sprintf("net%d", e.Instance))
		if !b.nets[net] {
			b.nets[net] = true
			b.devices = append(b.devices, Device{ID: net, Kind: Switch, NUMA: -1})
		}
		b.link(a, net, e.Protocols)
	default:
		b.faults.add(at+".link_type", "unknown value %q; use PEER2PEER or PEER2NET", e.LinkType)
	}
}

// check finds the faults of an edge that do not depend on others.
func (b *topoBuilder) check(at string, e *edge) {
	if len(e.Protocols) == 0 {
		b.faults.add(at+".protocols", "is empty")
	}
	for _, p := range e.Protocols {
		if !slices.Contains(protocols(), p) {
			b.faults.add(at+".protocols", "unknown value %q; use %s", p, strings.Join(protocols(), ", "))
		}
	}
	if len(e.APorts) == 0 {
		b.faults.add(at+".local_a_ports", "is empty")
	}
	if len(e.APorts) > maxEdgePorts || len(e.BPorts) > maxEdgePorts {
		b.faults.add(at, "%d ports; at most %d", max(len(e.APorts), len(e.BPorts)), maxEdgePorts)
	}
	if !slices.Contains(topoTypes(), e.Type) {
		b.faults.add(at+".topo_type", "unknown value %q; use %s", e.Type, strings.Join(topoTypes()[1:], ", "))
	}
	if !slices.Contains([]string{"", "DEVICE", "HOST"}, e.Position) {
		b.faults.add(at+".position", "unknown value %q; use DEVICE or HOST", e.Position)
	}
	if e.Instance < 0 {
		b.faults.add(at+".topo_instance_id", "%d must not be negative", e.Instance)
	}
}

func (b *topoBuilder) link(x, y ID, by []string) {
	class := TCP
	for _, p := range by {
		if c := classOf(p); c.order() < class.order() {
			class = c
		}
	}
	key := [2]ID{min(x, y), max(x, y)}
	if old, is := b.links[key]; is && old.Class.order() <= class.order() {
		return
	}
	b.links[key] = Link{A: x, B: y, Class: class, Transport: strings.Join(by, ",")}
}

// classOf returns the class of a protocol of a topology file.
func classOf(protocol string) Class {
	switch protocol {
	case "UB_CTP", "UB_TP", "UB_RTP", "UB_MEM", "HCCS":
		return Peer
	case "PCIE":
		return PCIe
	case "ROCE", "UBOE":
		return RoCE
	}
	return TCP
}
