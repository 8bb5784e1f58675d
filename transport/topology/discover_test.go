package topology

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// server2 is a machine with two sockets: two GPUs and a 100 Gbit/s card with RDMA
// below one switch of node 1, a GPU and a slow card at node 0.
func server2(t *testing.T) string {
	files := map[string]string{
		"devices/system/node/node0/cpulist":  "0-3,8-11",
		"devices/system/node/node0/distance": "10 21",
		"devices/system/node/node1/cpulist":  "4-7,12-15",
		"devices/system/node/node1/distance": "21 10",
		"devices/system/node/online":         "0-1",
		"class/net/lo/mtu":                   "65536",
	}
	pci := func(node int, speed string, width int, chain ...string) {
		dir := "devices/pci" + chain[0][:7] + "/" + strings.Join(chain, "/")
		files["bus/pci/devices/"+chain[len(chain)-1]] = "->" + dir
		files[dir+"/numa_node"] = fmt.Sprint(node)
		if speed != "" {
			files[dir+"/max_link_speed"] = speed + " GT/s PCIe"
			files[dir+"/current_link_width"] = fmt.Sprint(width)
		}
	}
	card := func(name, speed string, chain ...string) {
		dir := "devices/pci" + chain[0][:7] + "/" + strings.Join(chain, "/")
		files[dir+"/net/"+name+"/speed"] = speed
		files[dir+"/net/"+name+"/device"] = "->" + dir
		files["class/net/"+name] = "->" + dir + "/net/" + name
	}
	pci(0, "16.0", 16, "0000:00:01.0", "0000:01:00.0")
	pci(0, "8.0", 4, "0000:00:02.0", "0000:02:00.0")
	card("eno1", "10000", "0000:00:02.0", "0000:02:00.0")
	pci(1, "32.0", 16, "0000:80:01.0")
	pci(1, "32.0", 16, "0000:80:01.0", "0000:81:00.0")
	pci(1, "32.0", 16, "0000:80:01.0", "0000:81:00.0", "0000:82:00.0", "0000:83:00.0")
	pci(1, "32.0", 16, "0000:80:01.0", "0000:81:00.0", "0000:82:01.0", "0000:84:00.0")
	pci(1, "16.0", 16, "0000:80:01.0", "0000:81:00.0", "0000:82:02.0", "0000:85:00.0")
	card("ens5", "100000", "0000:80:01.0", "0000:81:00.0", "0000:82:02.0", "0000:85:00.0")
	files["class/infiniband/mlx5_0/device"] = "->devices/pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:02.0/0000:85:00.0"
	files["class/infiniband/mlx5_0/ports/1/rate"] = "100 Gb/sec (4X EDR)"
	return kit.Tree(t, files)
}

func gpus() []devices.Info {
	return []devices.Info{
		{Name: "host", Family: "host", HostMemory: true, NUMA: -1},
		{Name: "cuda0", Family: "cuda", PCI: "0000:01:00.0", NUMA: 0},
		{Name: "cuda1", Family: "cuda", PCI: "0000:83:00.0", NUMA: 1},
		{Name: "cuda2", Family: "cuda", PCI: "0000:84:00.0", NUMA: -1},
		{Name: "ocl0", Family: "opencl", PCI: "0000:84:00.0", NUMA: -1},
		{Name: "sim0", Family: "sim", NUMA: -1},
	}
}

func discovered(t *testing.T, o Options) *Graph {
	t.Helper()
	g, err := Discover(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func wantRoute(t *testing.T, g *Graph, from, to ID, want string) {
	t.Helper()
	r, err := g.Route(from, to, 1<<20)
	if err != nil || r.String() != want {
		t.Errorf("%v, %v; want %s", r, err, want)
	}
}

func TestDiscover(t *testing.T) {
	g := discovered(t, Options{Root: server2(t), Devices: gpus(), Peers: []Pair{{A: "cuda1", B: "cuda2"}, {A: "cuda2", B: "cuda1"}, {A: "cuda9", B: "cuda1"}}})
	var names []string
	for _, d := range g.Devices {
		names = append(names, string(d.ID))
	}
	if want := "cuda0 cuda1 cuda2 eno1 ens5 host numa0 numa1 ocl0 pci-0000:81:00.0 sim0"; strings.Join(names, " ") != want {
		t.Errorf("devices %v\nwant    %v", names, want)
	}
	wantRoute(t, g, "cuda0", "host", "cuda0 → numa0 → host")
	wantRoute(t, g, "cuda1", "cuda2", "cuda1 → cuda2")
	wantRoute(t, g, "cuda1", "ens5", "cuda1 → pci-0000:81:00.0 → ens5")
	wantRoute(t, g, "cuda0", "cuda1", "cuda0 → numa0 → numa1 → pci-0000:81:00.0 → cuda1")
	wantRoute(t, g, "sim0", "eno1", "sim0 → numa0 → eno1")
	for id, want := range map[ID]ID{"cuda0": "eno1", "cuda1": "ens5", "cuda2": "ens5", "numa1": "ens5"} {
		if d, err := g.Device(id); err != nil || d.NIC != want {
			t.Errorf("%s is near %s, %v; want %s", id, d.NIC, err, want)
		}
	}
	if d, _ := g.Device("cuda2"); d.NUMA != 1 || d.Card != "0000:84:00" {
		t.Errorf("cuda2 %+v", d)
	}
	if d, _ := g.Device("ens5"); !slices.Equal(d.Net, []string{"100 Gbit/s", "RDMA mlx5_0"}) {
		t.Errorf("ens5 %+v", d)
	}
	for _, c := range []struct {
		a, b      ID
		class     Class
		bandwidth float64
		assumed   bool
	}{
		{"cuda0", "numa0", PCIe, 16e9 * 16 * 128 / 130 / 8 / 1e9, false},
		{"eno1", "numa0", PCIe, 8e9 * 4 * 128 / 130 / 8 / 1e9, false},
		{"numa0", "numa1", NUMA, 20.0 * 20 / 21, true},
		{"cuda1", "cuda2", Peer, 50, true},
	} {
		l := linkOf(g, c.a, c.b)
		if l == nil || l.Class != c.class || l.Bandwidth < c.bandwidth*0.999 || l.Bandwidth > c.bandwidth*1.001 || l.Assumed != c.assumed {
			t.Errorf("%s–%s: %+v, want %+v", c.a, c.b, l, c)
		}
	}
	if order, err := g.Ring(ids("cuda1", "cuda0", "cuda2", "host"), 1<<20); err != nil || !adjacent(order, 0, 2) {
		t.Errorf("ring %v, %v", order, err)
	}
}

func linkOf(g *Graph, a, b ID) *Link {
	i := slices.IndexFunc(g.Links, func(l Link) bool { return l.A == a && l.B == b })
	if i < 0 {
		return nil
	}
	return &g.Links[i]
}

func TestDiscoverOtherMachines(t *testing.T) {
	o := Options{Root: server2(t), Devices: gpus(), Server: "a", Remotes: []Remote{
		{Name: "b", Devices: []string{"host", "cuda0"}}, {Name: "c", Devices: []string{"host"}, Shared: true},
	}}
	g := discovered(t, o)
	wantRoute(t, g, "cuda1", "b/cuda0", "cuda1 → pci-0000:81:00.0 → ens5 → network → b/numa0 → b/cuda0")
	wantRoute(t, g, "host", "c/host", "host → numa0 → c/numa0 → c/host")
	if d, _ := g.Device("b/cuda0"); d.Server != "b" {
		t.Errorf("b/cuda0 %+v", d)
	}
	if d, _ := g.Device("cuda0"); d.Server != "a" {
		t.Errorf("cuda0 %+v", d)
	}
}

func TestDiscoverLittle(t *testing.T) {
	// A kernel without NUMA, in a container without a bus.
	g := discovered(t, Options{Root: kit.Tree(t, map[string]string{"devices/system/cpu/online": "0-1"}), Devices: gpus()[:2]})
	wantRoute(t, g, "cuda0", "host", "cuda0 → numa0 → host")
	if l := linkOf(g, "cuda0", "numa0"); l == nil || !l.Assumed {
		t.Errorf("link %+v", l)
	}
	if _, err := Discover(Options{Root: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a root that is not there is no error")
	}
}

func TestDiscoverNamesThatClash(t *testing.T) {
	root := kit.Tree(t, map[string]string{
		"devices/pci0000:00/0000:00:03.0/numa_node":   "-1",
		"devices/pci0000:00/0000:00:03.0/net/sim0/tx": "",
		"bus/pci/devices/0000:00:03.0":                "->devices/pci0000:00/0000:00:03.0",
		"class/net/sim0/device":                       "->devices/pci0000:00/0000:00:03.0",
		"class/net/sim0/speed":                        "-1",
	})
	g := discovered(t, Options{Root: root, Devices: []devices.Info{{Name: "sim0", Family: "sim", NUMA: -1}}, Remotes: []Remote{{Name: "b", Devices: []string{"host"}}}})
	wantRoute(t, g, "sim0", "net-sim0", "sim0 → numa0 → net-sim0")
	wantRoute(t, g, "sim0", "b/host", "sim0 → numa0 → net-sim0 → network → b/numa0 → b/host")
}

func TestDiscoverThisMachine(t *testing.T) {
	g := discovered(t, Options{Devices: gpus()[:1]})
	if _, err := g.Device("host"); err != nil {
		t.Error(err)
	}
	if again := discovered(t, Options{Devices: gpus()[:1]}); again.Hash() != g.Hash() {
		t.Error("the same machine has another hash")
	}
}

func TestCPULists(t *testing.T) {
	for list, want := range map[string][]int{"": nil, "0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "8,0-1,1": {0, 1, 8}} {
		got, err := ParseCPUs(list)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %v, %v", list, got, err)
		}
		back, err := ParseCPUs(FormatCPUs(got))
		if err != nil || !slices.Equal(back, want) {
			t.Errorf("%v comes back as %v, %v", want, back, err)
		}
	}
	for _, list := range []string{"x", "3-1", "-1", "0-", "0-99999999", "1,,2"} {
		if got, err := ParseCPUs(list); err == nil {
			t.Errorf("%q is %v", list, got)
		}
	}
	if text := FormatCPUs([]int{0, 1, 2, 5, 7, 8}); text != "0-2,5,7-8" {
		t.Error(text)
	}
}
