package topology

import (
	"fmt"
	"net/netip"
	"slices"
)

// networkID is the network that connects the machines of a rank table.
const networkID ID = "network"

// mesh is the maximum number of devices of one machine that are linked pairwise;
// more are linked by a switch, which gives the same route times.
const mesh = 16

// rankTable1 is a rank table of version 1.0 or 1.2.
type rankTable1 struct {
	Version     text     `json:"version"`
	Status      string   `json:"status"`
	ServerCount *number  `json:"server_count"`
	Servers     []server `json:"server_list"`
}

type server struct {
	ID      text `json:"server_id"`
	HostIP  text `json:"host_ip"`
	Devices []struct {
		DeviceID *number `json:"device_id"`
		RankID   *number `json:"rank_id"`
		DeviceIP text    `json:"device_ip"`
		NetBy    string  `json:"net_protocol"`
	} `json:"device"`
}

func parseRankTable1(raw []byte) (*Graph, error) {
	var t rankTable1
	if err := decode(raw, &t, false); err != nil {
		return nil, err
	}
	f := &faults{}
	if t.Version != "1.0" && t.Version != "1.2" {
		f.add("version", "%q must be \"1.0\" or \"1.2\"", string(t.Version))
	}
	checkStatus(f, t.Status)
	if t.ServerCount != nil && int(*t.ServerCount) != len(t.Servers) {
		f.add("server_count", "is %d, but server_list has %d", *t.ServerCount, len(t.Servers))
	}
	b := &tableBuilder{faults: f, ids: map[ID]bool{}}
	seen := map[text]bool{}
	addresses := -1
	for i, s := range t.Servers {
		at := fmt.Sprintf("server_list[%d]", i)
		switch {
		case s.ID == "":
			f.add(at+".server_id", "is missing")
		case seen[s.ID]:
			f.add(at+".server_id", "duplicate %q", string(s.ID))
		}
		seen[s.ID] = true
		addresses = b.server1(at, &s, addresses)
	}
	b.checkRanks()
	if err := f.err(); err != nil {
		return nil, err
	}
	b.join(len(t.Servers) > 1)
	return New(b.devices, b.links)
}

func checkStatus(f *faults, status string) {
	if status != "" && status != "completed" {
		f.add("status", "%q must be \"completed\"", status)
	}
}

// server1 adds one machine. addresses is the number of addresses that each device
// must have, -1 before the first one.
func (b *tableBuilder) server1(at string, s *server, addresses int) int {
	b.group(string(s.ID))
	for j := range s.Devices {
		d := &s.Devices[j]
		here := fmt.Sprintf("%s.device[%d]", at, j)
		if d.DeviceID == nil || d.RankID == nil {
			b.faults.add(here, "device_id or rank_id is missing")
			continue
		}
		var nets []string
		if d.DeviceIP != "" {
			nets = append(nets, string(d.DeviceIP))
			if _, err := netip.ParseAddr(string(d.DeviceIP)); err != nil {
				b.faults.add(here+".device_ip", "%q is not an IP address", string(d.DeviceIP))
			}
		}
		if addresses >= 0 && addresses != len(nets) {
			b.faults.add(here+".device_ip", "has %d addresses, but the devices before have %d: all devices must have the same number", len(nets), addresses)
		}
		addresses = len(nets)
		id := ID(fmt.Sprintf("%s/npu%d", s.ID, *d.DeviceID))
		if d.NetBy == "tcp" {
			b.slow = true
		}
		b.device(here, id, int(*d.RankID), nets)
	}
	return addresses
}

// tableBuilder builds the graph of a rank table.
type tableBuilder struct {
	faults  *faults
	ids     map[ID]bool
	devices []Device
	links   []Link
	// groups holds the devices of each machine.
	groups [][]ID
	server string
	// slow means that machines are connected by TCP.
	slow bool
}

func (b *tableBuilder) group(name string) {
	b.server = name
	b.groups = append(b.groups, nil)
}

func (b *tableBuilder) device(at string, id ID, rank int, nets []string) {
	if b.ids[id] {
		b.faults.add(at, "duplicate device %s", id)
		return
	}
	b.ids[id] = true
	b.devices = append(b.devices, Device{ID: id, Kind: Accelerator, Server: b.server, NUMA: -1, Rank: &rank, Net: nets})
	last := len(b.groups) - 1
	b.groups[last] = append(b.groups[last], id)
}

// checkRanks checks that each rank from 0 occurs exactly once.
func (b *tableBuilder) checkRanks() {
	ranks := make([]int, len(b.devices))
	for i := range b.devices {
		ranks[i] = *b.devices[i].Rank
	}
	slices.Sort(ranks)
	if len(ranks) == 0 {
		b.faults.add("rank_id", "the table has no ranks")
	}
	for i, r := range ranks {
		switch {
		case i > 0 && r == ranks[i-1]:
			b.faults.add("rank_id", "duplicate rank %d", r)
			return
		case r != i:
			b.faults.add("rank_id", "rank %d is missing: ranks must be numbered from 0 without gaps", i)
			return
		}
	}
}

// join links the devices of each machine to each other, and to the network.
func (b *tableBuilder) join(network bool) {
	for _, g := range b.groups {
		b.joinPeers(g)
	}
	if !network {
		return
	}
	class := RoCE
	if b.slow {
		class = TCP
	}
	b.star(networkID, class, slices.Concat(b.groups...))
}

// star links devices by a switch.
func (b *tableBuilder) star(hub ID, class Class, ids []ID) {
	b.devices = append(b.devices, Device{ID: hub, Kind: Switch, NUMA: -1})
	for _, id := range ids {
		b.links = append(b.links, Link{A: id, B: hub, Class: class})
	}
}

// joinPeers links the devices of one machine.
func (b *tableBuilder) joinPeers(g []ID) {
	if len(g) <= mesh {
		for i, one := range g {
			for _, other := range g[:i] {
				b.links = append(b.links, Link{A: other, B: one, Class: Peer})
			}
		}
		return
	}
	b.star(g[0]+"-peers", Peer, g)
}
