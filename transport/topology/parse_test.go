package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const tableV1 = `{"version":"1.0","status":"completed","server_count":"2","server_list":[
 {"server_id":"m0","host_ip":"172.16.0.1","device":[
  {"device_id":"0","device_ip":"192.168.1.1","rank_id":"0"},{"device_id":"1","device_ip":"192.168.1.2","rank_id":"1"}]},
 {"server_id":"m1","device":[
  {"device_id":"0","device_ip":"192.168.2.1","rank_id":"2"},{"device_id":"1","device_ip":"192.168.2.2","rank_id":"3"}]}]}`

const tableV2 = `{"version":"2.0","status":"completed","rank_count":4,"rank_list":[` +
	`{"rank_id":0,"device_id":0,"local_id":0,"device_port":16666,"level_list":[` + layer0A + `,` + layer1 + `]},` +
	`{"rank_id":1,"device_id":1,"local_id":1,"level_list":[` + layer0A + `,` + layer1 + `]},` +
	`{"rank_id":2,"device_id":0,"local_id":0,"level_list":[` + layer0B + `,` + layer1 + `]},` +
	`{"rank_id":3,"device_id":1,"local_id":1,"level_list":[` + layer0B + `,` + layer1 + `]}]}`

const (
	layer0A = `{"net_layer":0,"net_instance_id":"rack0","net_type":"TOPO_FILE_DESC","net_attr":"","rank_addr_list":[{"addr_type":"EID","addr":"000000000000000000100000dfdf0020","ports":["0/4"],"plane_id":"p0"}]}`
	layer0B = `{"net_layer":0,"net_instance_id":"rack1","net_type":"TOPO_FILE_DESC","rank_addr_list":[{"addr_type":"IPV4","addr":"172.16.1.1","ports":["1/0"]}]}`
	layer1  = `{"net_layer":2,"net_instance_id":"az0","net_type":"CLOS","rank_addr_list":[{"addr_type":"IPV6","addr":"fe80::1","ports":["d2h"]}]}`
)

const topoV2 = `{"version":"2.0","hardware_type":"any","peer_count":3,"peer_list":[{"local_id":0},{"local_id":1},{"local_id":2}],
 "edge_count":5,"edge_list":[
 {"net_layer":0,"link_type":"PEER2PEER","protocols":["UB_CTP"],"topo_type":"1DMESH","topo_instance_id":0,"local_a":0,"local_a_ports":["0/0"],"local_b":1,"local_b_ports":["0/1"],"position":"DEVICE"},
 {"net_layer":0,"link_type":"PEER2PEER","protocols":["PCIE"],"local_a":1,"local_a_ports":["0/0"],"local_b":0,"local_b_ports":["0/1"]},
 {"net_layer":0,"link_type":"PEER2PEER","protocols":["UB_MEM"],"local_a":0,"local_a_ports":["0/0"],"local_b":2,"local_b_ports":["0/1"]},
 {"net_layer":1,"link_type":"PEER2NET","protocols":["ROCE"],"topo_instance_id":7,"local_a":0,"local_a_ports":["0/2"],"position":"HOST"},
 {"net_layer":1,"link_type":"PEER2NET","protocols":["ROCE"],"topo_instance_id":7,"local_a":1,"local_a_ports":["0/2"]}]}`

const own = `{"version":"1.0","devices":[{"id":"cuda0","kind":"accelerator","numa":0,"nic":"eth0"},{"id":"host","kind":"host"},
 {"id":"numa0","kind":"numa","numa":0}],"links":[{"a":"numa0","b":"cuda0","class":"pcie","bw_GBps":25,"lat_us":2,"transport":"x16"},
 {"a":"host","b":"numa0","class":"shm"}]}`

func TestParseWhatThereIs(t *testing.T) {
	for _, c := range []struct {
		name, text     string
		devices, links int
		ranks          []ID
	}{
		{"rank table 1", tableV1, 5, 2 + 4, ids("m0/npu0", "m0/npu1", "m1/npu0", "m1/npu1")},
		{"rank table 2", tableV2, 5, 2 + 4, ids("rack0/npu0", "rack0/npu1", "rack1/npu0", "rack1/npu1")},
		// The second edge is the first one again, and slower.
		{"topology file", topoV2, 4, 4, nil},
		{"topology.json", own, 3, 2, nil},
	} {
		g, err := Parse([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if len(g.Devices) != c.devices || len(g.Links) != c.links {
			t.Errorf("%s: %d devices, %d links: %+v", c.name, len(g.Devices), len(g.Links), g.Links)
		}
		ranks, err := g.Ranks()
		if err != nil || !slices.Equal(ranks, c.ranks) {
			t.Errorf("%s: ranks %v, %v", c.name, ranks, err)
		}
		text, err := g.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(text)
		if err != nil || again.Hash() != g.Hash() {
			t.Errorf("%s: read again it differs, %v:\n%s", c.name, err, text)
		}
	}
}

func TestParsedRingStaysInItsMachines(t *testing.T) {
	for _, text := range []string{tableV1, tableV2} {
		g, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		ranks, _ := g.Ranks()
		order, err := g.Ring([]ID{ranks[0], ranks[2], ranks[1], ranks[3]}, 1<<20)
		if err != nil || !adjacent(order, 0, 2) || !adjacent(order, 1, 3) {
			t.Errorf("ring %v, %v", order, err)
		}
	}
}

func TestOwnFileSaysWhatItLeavesOpen(t *testing.T) {
	g, err := Parse([]byte(own))
	if err != nil {
		t.Fatal(err)
	}
	h, err := g.Device("host")
	if err != nil || h.NUMA != -1 {
		t.Errorf("host %+v, %v", h, err)
	}
	if l := g.Links[0]; l.A != "cuda0" || l.B != "numa0" || l.Assumed || l.Bandwidth != 25 {
		t.Errorf("given link %+v", l)
	}
	if l := g.Links[1]; !l.Assumed || l.Bandwidth != 10 {
		t.Errorf("link left open %+v", l)
	}
}

func TestParseRefuses(t *testing.T) {
	swap := func(text, old, next string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not in %s", old, text)
		}
		return strings.Replace(text, old, next, 1)
	}
	ports := `["` + strings.Repeat(`0/1","`, maxPorts) + `0/1"]`
	for _, c := range []struct{ field, text string }{
		{"file", ""},
		{"file", "[]"},
		{"file", "{}"},
		{"file", own + "{}"},
		{"file", own + "x"},
		{"version", swap(own, `"version":"1.0"`, `"version":"3.0"`)},
		{"devices", swap(own, `"id":"host"`, `"id":"cuda0"`)},
		{"devices", swap(own, `"kind":"host"`, `"kind":"toaster"`)},
		{"devices", swap(own, `"id":"host"`, `"id":""`)},
		{"links", swap(own, `"a":"host"`, `"a":"moon"`)},
		{"links", swap(own, `"a":"host"`, `"a":"numa0"`)},
		{"links", swap(own, `"class":"shm"`, `"class":"string"`)},
		{"links", swap(own, `"bw_GBps":25`, `"bw_GBps":-1`)},
		{"file", swap(own, `"bw_GBps"`, `"bandwidth"`)},

		{"version", swap(tableV1, `"version":"1.0"`, `"version":"3.0"`)},
		{"status", swap(tableV1, `completed`, `initializing`)},
		{"server_count", swap(tableV1, `"server_count":"2"`, `"server_count":"3"`)},
		{"server_list[1].server_id", swap(tableV1, `"m1"`, `"m0"`)},
		{"rank_id", swap(tableV1, `"rank_id":"3"`, `"rank_id":"2"`)},
		{"rank_id", swap(tableV1, `"rank_id":"3"`, `"rank_id":"4"`)},
		{"server_list[1].device[1]", swap(tableV1, `"device_id":"1","device_ip":"192.168.2.2"`, `"device_id":"0","device_ip":"192.168.2.2"`)},
		{"server_list[1].device[0].device_ip", swap(tableV1, `"device_ip":"192.168.2.1",`, ``)},
		{"server_list[0].device[0].device_ip", swap(tableV1, `192.168.1.1`, `192.168.1`)},
		{"file", swap(tableV1, `"rank_id":"3"`, `"rank_id":{}`)},

		{"version", swap(tableV2, `"version":"2.0"`, `"version":"3.0"`)},
		{"rank_count", swap(tableV2, `"rank_count":4`, `"rank_count":5`)},
		{"rank_count", swap(tableV2, `"rank_count":4`, `"rank_count":65537`)},
		{"rank_id", swap(tableV2, `"rank_id":1`, `"rank_id":0`)},
		{"rank_list[0].level_list", swap(tableV2, `[`+layer0A+`,`+layer1+`]`, `[]`)},
		{"rank_list[0].level_list[0].net_layer", swap(tableV2, `"net_layer":0`, `"net_layer":8`)},
		{"rank_list[0].level_list[1].net_layer", swap(tableV2, `"net_layer":2`, `"net_layer":0`)},
		{"rank_list[0].level_list[0].rank_addr_list[0].addr_type", swap(tableV2, `"EID"`, `"MAC"`)},
		{"rank_list[0].level_list[0].rank_addr_list[0].addr", swap(tableV2, `dfdf0020`, `dfdf002`)},
		{"rank_list[0].level_list[0].rank_addr_list[0].ports", swap(tableV2, `["0/4"]`, ports)},

		{"version", swap(topoV2, `"version":"2.0"`, `"version":"3.0"`)},
		{"peer_list[1].local_id", swap(topoV2, `{"local_id":1}`, `{"local_id":0}`)},
		{"peer_count", swap(topoV2, `"peer_count":3`, `"peer_count":2`)},
		{"edge_count", swap(topoV2, `"edge_count":5`, `"edge_count":4`)},
		{"edge_list[0].local_b", swap(topoV2, `"local_b":1`, `"local_b":0`)},
		{"edge_list[0].local_b", swap(topoV2, `"local_b":1`, `"local_b":9`)},
		{"edge_list[0].protocols", swap(topoV2, `["UB_CTP"]`, `[]`)},
		{"edge_list[0].protocols", swap(topoV2, `["UB_CTP"]`, `["PIGEON"]`)},
		{"edge_list[0].local_a_ports", swap(topoV2, `"local_a_ports":["0/0"]`, `"local_a_ports":[]`)},
		{"edge_list[0].topo_type", swap(topoV2, `1DMESH`, `3DMESH`)},
		{"edge_list[0].link_type", swap(topoV2, `PEER2PEER`, `PEER`)},
		{"edge_list[0].position", swap(topoV2, `DEVICE`, `MOON`)},
	} {
		g, err := Parse([]byte(c.text))
		if !errors.Is(err, ErrFile) {
			t.Errorf("%s: %v, %v", c.field, g, err)
			continue
		}
		if !hasField(err, c.field) {
			t.Errorf("want field %s, got %v", c.field, err)
		}
	}
}

func hasField(err error, field string) bool {
	if one, is := errors.AsType[*FieldError](err); is && one.Field == field {
		return true
	}
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) {
		return false
	}
	return slices.ContainsFunc(many.Unwrap(), func(e error) bool { return hasField(e, field) })
}

func TestFaultsAreBounded(t *testing.T) {
	var links []Link
	for range 3 * maxFaults {
		links = append(links, Link{A: "x", B: "y", Class: PCIe})
	}
	_, err := New(nil, links)
	if n := strings.Count(fmt.Sprint(err), "\n") + 1; n != maxFaults+1 {
		t.Errorf("%d lines:\n%v", n, err)
	}
}

func TestHashTellsApart(t *testing.T) {
	parse := func(text string) *Graph {
		g, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	hash := parse(own).Hash()
	if len(hash) != 32 || parse(own).Hash() != hash {
		t.Errorf("hash %q is not the same again", hash)
	}
	if h := parse(strings.Replace(own, "x16", "x8", 1)).Hash(); h != hash {
		t.Error("a text for people counts")
	}
	for old, next := range map[string]string{
		`"bw_GBps":25`: `"bw_GBps":26`, `"lat_us":2`: `"lat_us":3`, `"class":"shm"`: `"class":"tcp"`,
		`"id":"numa0","kind":"numa","numa":0`: `"id":"numa0","kind":"numa","numa":1`,
	} {
		if h := parse(strings.Replace(own, old, next, 1)).Hash(); h == hash {
			t.Errorf("%s does not count", next)
		}
	}
}

func TestNamesAreInPeoplesOrder(t *testing.T) {
	got := ids("cuda10", "b", "cuda2", "a/x10", "a/x9", "cuda", "a10b2", "a10b10", "a9")
	slices.SortFunc(got, compareIDs)
	if want := ids("a9", "a10b2", "a10b10", "a/x9", "a/x10", "b", "cuda", "cuda2", "cuda10"); !slices.Equal(got, want) {
		t.Errorf("order %v", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{own, tableV1, tableV2, topoV2, "", "{}", `{"devices":[{}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		g, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrFile) {
				t.Fatalf("%v is no ErrFile", err)
			}
			return
		}
		again, err := g.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(again)
		if err != nil || back.Hash() != g.Hash() {
			t.Fatalf("it does not come back: %v\n%s", err, again)
		}
	})
}
