package topology

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// The bounds of a rank table of version 2.0.
const (
	maxTableRanks = 1 << 16
	maxLevels     = 8
	maxAddresses  = 24
	maxPorts      = 16
	maxNetLayer   = 7
)

// rankTable2 is a rank table of version 2.0.
type rankTable2 struct {
	Version   text    `json:"version"`
	Status    string  `json:"status"`
	RankCount *number `json:"rank_count"`
	Ranks     []struct {
		RankID   *number `json:"rank_id"`
		DeviceID *number `json:"device_id"`
		LocalID  *number `json:"local_id"`
		Levels   []level `json:"level_list"`
	} `json:"rank_list"`
}

type level struct {
	Layer     *number `json:"net_layer"`
	Instance  text    `json:"net_instance_id"`
	Type      string  `json:"net_type"`
	Addresses []struct {
		Type  string   `json:"addr_type"`
		Addr  string   `json:"addr"`
		Ports []string `json:"ports"`
	} `json:"rank_addr_list"`
}

// instance is one network of a layer.
type instance struct {
	layer int
	name  string
}

func parseRankTable2(raw []byte) (*Graph, error) {
	var t rankTable2
	if err := decode(raw, &t, false); err != nil {
		return nil, err
	}
	f := &faults{}
	if t.Version != "2.0" {
		f.add("version", "%q must be \"2.0\"", string(t.Version))
	}
	checkStatus(f, t.Status)
	switch {
	case t.RankCount == nil:
		f.add("rank_count", "is missing")
	case *t.RankCount < 1 || *t.RankCount > maxTableRanks:
		f.add("rank_count", "%d must be between 1 and %d", *t.RankCount, maxTableRanks)
	case int(*t.RankCount) != len(t.Ranks):
		f.add("rank_count", "is %d, but rank_list has %d", *t.RankCount, len(t.Ranks))
	}
	b := &tableBuilder{faults: f, ids: map[ID]bool{}}
	members := map[instance][]ID{}
	for i := range t.Ranks {
		r := &t.Ranks[i]
		at := fmt.Sprintf("rank_list[%d]", i)
		if r.RankID == nil || r.LocalID == nil {
			f.add(at, "rank_id or local_id is missing")
			continue
		}
		id, nets := b.levels(at, r.Levels, int(*r.LocalID))
		b.group(serverOf(r.Levels))
		b.device(at, id, int(*r.RankID), nets)
		for _, l := range r.Levels {
			if l.Layer != nil {
				in := instance{layer: int(*l.Layer), name: string(l.Instance)}
				members[in] = append(members[in], id)
			}
		}
	}
	b.checkRanks()
	if err := f.err(); err != nil {
		return nil, err
	}
	b.networks(members)
	return New(b.devices, b.links)
}

// serverOf returns the machine of a rank: the network of its lowest layer.
func serverOf(levels []level) string {
	name, least := "", maxNetLayer+1
	for _, l := range levels {
		if l.Layer != nil && int(*l.Layer) < least {
			name, least = string(l.Instance), int(*l.Layer)
		}
	}
	return name
}

// levels checks the networks of a rank, and returns its name and its addresses.
func (b *tableBuilder) levels(at string, levels []level, local int) (id ID, nets []string) {
	if len(levels) == 0 || len(levels) > maxLevels {
		b.faults.add(at+".level_list", "%d levels; use 1 to %d", len(levels), maxLevels)
	}
	seen := map[int]bool{}
	for i, l := range levels {
		here := fmt.Sprintf("%s.level_list[%d]", at, i)
		switch {
		case l.Layer == nil || *l.Layer < 0 || *l.Layer > maxNetLayer:
			b.faults.add(here+".net_layer", "is missing, or not between 0 and %d", maxNetLayer)
		case seen[int(*l.Layer)]:
			b.faults.add(here+".net_layer", "duplicate level %d", *l.Layer)
		default:
			seen[int(*l.Layer)] = true
		}
		if l.Instance == "" {
			b.faults.add(here+".net_instance_id", "is missing")
		}
		if len(l.Addresses) > maxAddresses {
			b.faults.add(here+".rank_addr_list", "%d addresses; at most %d", len(l.Addresses), maxAddresses)
		}
		for j, a := range l.Addresses {
			b.address(fmt.Sprintf("%s.rank_addr_list[%d]", here, j), a.Type, a.Addr, len(a.Ports))
			nets = append(nets, a.Addr)
		}
	}
	return ID(fmt.Sprintf("%s/npu%d", serverOf(levels), local)), nets
}

func (b *tableBuilder) address(at, kind, addr string, ports int) {
	ip, err := netip.ParseAddr(addr)
	switch kind {
	case "IPV4":
		if err != nil || !ip.Is4() {
			b.faults.add(at+".addr", "%q is not an IPv4 address", addr)
		}
	case "IPV6":
		if err != nil || !ip.Is6() {
			b.faults.add(at+".addr", "%q is not an IPv6 address", addr)
		}
	case "EID":
		if _, err = hex.DecodeString(addr); len(addr) != 32 || err != nil {
			b.faults.add(at+".addr", "%q is not an EID of 32 hexadecimal digits", addr)
		}
	default:
		b.faults.add(at+".addr_type", "unknown type %q; use IPV4, IPV6 or EID", kind)
	}
	if ports == 0 || ports > maxPorts {
		b.faults.add(at+".ports", "%d ports; use 1 to %d", ports, maxPorts)
	}
}

// networks links the ranks of each network: those of layer 0 pairwise, which a
// topology file may refine, and the others by a switch. Layer 1 connects cards,
// and higher layers are networks between machines.
func (b *tableBuilder) networks(members map[instance][]ID) {
	inOrder := func(x, y instance) int { return cmp.Or(x.layer-y.layer, compareIDs(ID(x.name), ID(y.name))) }
	for _, in := range slices.SortedFunc(maps.Keys(members), inOrder) {
		ids := members[in]
		if in.layer == 0 {
			b.joinPeers(ids)
			continue
		}
		class := RoCE
		if in.layer == 1 {
			class = Peer
		}
		b.star(ID(fmt.Sprintf("layer%d/%s", in.layer, in.name)), class, ids)
	}
}
