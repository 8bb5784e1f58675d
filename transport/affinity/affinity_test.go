package affinity

import (
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/topology"
)

// twoNodes is a machine with a card at node 1, whose interrupts are at node 0.
func twoNodes(t *testing.T, cpus0, cpus1 string) (sys, proc string) {
	t.Helper()
	const nic = "devices/pci0000:80/0000:80:01.0"
	sys = kit.Tree(t, map[string]string{
		"devices/system/node/node0/cpulist":  cpus0 + "\n",
		"devices/system/node/node1/cpulist":  cpus1 + "\n",
		"devices/system/node/node0/distance": "10 20\n",
		"devices/system/node/node1/distance": "20 10\n",
		nic + "/numa_node":                   "1\n",
		nic + "/msi_irqs/41":                 "msix\n",
		nic + "/msi_irqs/42":                 "msix\n",
		nic + "/net/eth1/device":             "->" + nic,
		"bus/pci/devices/0000:80:01.0":       "->" + nic,
		"class/net/eth1":                     "->" + nic + "/net/eth1",
	})
	proc = kit.Tree(t, map[string]string{
		"interrupts": "     CPU0 CPU1\n 7: 1 2 IO-APIC 7-edge rtc0\n 41: 3 4 PCI-MSI 1-edge mlx5_comp0@pci\n" +
			" 43: 3 4 PCI-MSI 1-edge eth1-tx-0\n 44: 3 4 PCI-MSI 1-edge eth10-tx-0\nNMI: 0 0 Non-maskable interrupts\n",
		"irq/41/smp_affinity_list": cpus0 + "\n",
		"irq/42/smp_affinity_list": cpus1 + "\n",
		"irq/7/smp_affinity_list":  cpus0 + "\n",
	})
	return sys, proc
}

func TestPlanOfTwoNodes(t *testing.T) {
	kit.Check(t)
	sys, proc := twoNodes(t, "0-3", "4-7")
	g, err := topology.Discover(topology.Options{Root: sys, Devices: []devices.Info{
		{Name: "cuda0", Family: "cuda", PCI: "0000:80:01.0", NUMA: 1}, {Name: "sim0", Family: "sim", NUMA: -1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(Options{Sys: sys, Proc: proc, Graph: g})
	if err != nil {
		t.Fatal(err)
	}
	if p.Nodes != 2 || p.Idle != "" {
		t.Errorf("plan %+v", p)
	}
	want := []Thread{{"eth1", 1, "4-7"}, {"cuda0", 1, "4-7"}, {"sim0", -1, "0-7"}}
	if !slices.Equal(p.Threads, want) {
		t.Errorf("threads %+v, want %+v", p.Threads, want)
	}
	irqs := []IRQ{
		{41, "mlx5_comp0@pci", "eth1", 1, "4-7", "0-3", false},
		{42, "", "eth1", 1, "4-7", "4-7", true},
		{43, "eth1-tx-0", "eth1", 1, "4-7", "", false},
	}
	if !slices.Equal(p.IRQs, irqs) {
		t.Errorf("interrupts %+v, want %+v", p.IRQs, irqs)
	}
	results := p.ApplyIRQs(proc)
	if len(results) != 3 || !results[0].Done || !results[0].IRQ.Right || results[1].Done || results[1].Problem != "" || results[2].Done || results[2].Problem == "" {
		t.Errorf("results %+v", results)
	}
	if got := read(proc, "irq/41/smp_affinity_list"); got != "4-7" {
		t.Errorf("interrupt 41 goes to %q", got)
	}
	if got := read(proc, "irq/7/smp_affinity_list"); got != "0-3" {
		t.Errorf("interrupt 7, which is nobody's, goes to %q", got)
	}
}

func TestPlanOfOneNode(t *testing.T) {
	sys := kit.Tree(t, map[string]string{"devices/system/cpu/online": "0-1\n"})
	p, err := Make(Options{Sys: sys, Proc: t.TempDir()})
	if err != nil || p.Nodes != 1 || p.Idle == "" || len(p.Threads)+len(p.IRQs) != 0 {
		t.Errorf("plan %+v, %v", p, err)
	}
	m, err := topology.ReadMachine(sys)
	if err != nil {
		t.Fatal(err)
	}
	if NewPinner(m) != nil {
		t.Error("there is a pinner for one node")
	}
}

// TestPlanOfThisMachine compares the plan with the processors on which one of our
// threads really runs: case 24 of the contract.
func TestPlanOfThisMachine(t *testing.T) {
	p, err := Make(Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := topology.ReadMachine(topology.SysRoot)
	if err != nil {
		t.Fatal(err)
	}
	pinner := NewPinner(m)
	for _, th := range p.Threads {
		leave := pinner.Enter(th.NUMA)
		if now := affinity(t); !inside(now, th.CPUs) {
			t.Errorf("a thread of %s runs on %s, the plan says %s", th.Device, now, th.CPUs)
		}
		leave()
	}
}

// affinity is the processors that the calling thread may use.
func affinity(t *testing.T) string {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for c := range 1024 {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return topology.FormatCPUs(cpus)
}

func TestNearANetworkCard(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	m := &topology.Machine{Nodes: []topology.Node{{ID: 0}, {ID: 1}}}
	want := map[netip.Addr]int{netip.MustParseAddr("127.0.0.1"): -1, netip.MustParseAddr("192.0.2.1"): -1, {}: -1}
	for i, card := range all {
		m.NICs = append(m.NICs, topology.Card{Name: card.Name, NUMA: i % 2})
		addrs, _ := card.Addrs()
		for _, a := range addrs {
			if p, perr := netip.ParsePrefix(a.String()); perr == nil && !p.Addr().IsLoopback() {
				want[p.Addr()] = i % 2
			}
		}
	}
	p := NewPinner(m)
	for addr, node := range want {
		if got := p.Near(addr); got != node {
			t.Errorf("%v is near node %d, want %d", addr, got, node)
		}
	}
	var none *Pinner
	if got := none.Near(netip.MustParseAddr("192.0.2.1")); got != -1 {
		t.Errorf("without a pinner it is node %d", got)
	}
}

// TestPinner really pins: it makes two nodes from the existing processors.
func TestPinner(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := affinity(t)
	cpus, err := topology.ParseCPUs(all)
	if err != nil || len(cpus) < 2 {
		t.Skip("one processor is no two nodes")
	}
	m := &topology.Machine{Nodes: []topology.Node{{ID: 0, CPUs: cpus[:1]}, {ID: 1, CPUs: cpus[1:]}, {ID: 2, CPUs: []int{1000}}}}
	p := NewPinner(m)
	leave := p.Enter(0)
	if got, want := affinity(t), topology.FormatCPUs(cpus[:1]); got != want {
		t.Errorf("in node 0 it runs on %s, want %s", got, want)
	}
	// Inside node 0 there is nothing of node 1.
	inner := p.Enter(1)
	if got, want := affinity(t), topology.FormatCPUs(cpus[:1]); got != want {
		t.Errorf("nested it runs on %s, want %s", got, want)
	}
	inner()
	leave()
	if got := affinity(t); got != all {
		t.Errorf("behind it, it runs on %s, want %s", got, all)
	}
	p.Enter(1)()
	for _, node := range []int{-1, 2, 9} {
		p.Enter(node)()
	}
	var none *Pinner
	none.Enter(0)()
	if got := affinity(t); got != all {
		t.Errorf("at the end it runs on %s, want %s", got, all)
	}
	if err := unix.SchedGetaffinity(0, new(unix.CPUSet)); err != nil {
		t.Fatal(err)
	}
}
