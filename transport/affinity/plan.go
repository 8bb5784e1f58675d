package affinity

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/transport/topology"
)

// ProcRoot is the directory in which the kernel lists interrupts.
const ProcRoot = "/proc"

// Options are the options of Make.
type Options struct {
	// Sys and Proc are the kernel's trees. Default topology.SysRoot and ProcRoot.
	Sys  string
	Proc string
	// Graph contains the devices that threads serve. Nil means network cards
	// only.
	Graph *topology.Graph
}

// Plan assigns threads and interrupts to processors.
type Plan struct {
	// Nodes is the number of NUMA nodes.
	Nodes int `json:"nodes"`
	// Idle is the reason why there is nothing to do, if so.
	Idle string `json:"idle,omitempty"`
	// Threads lists the threads that move bytes of a device or a network card.
	Threads []Thread `json:"threads"`
	// IRQs lists the interrupts of network cards.
	IRQs []IRQ `json:"irqs"`
}

// Thread holds the processors for threads of a device.
type Thread struct {
	Device topology.ID `json:"device"`
	// NUMA is the device's node, -1 if unknown: then any processor will do.
	NUMA int    `json:"numa"`
	CPUs string `json:"cpus"`
}

// IRQ holds the processors for an interrupt.
type IRQ struct {
	Number int    `json:"irq"`
	Name   string `json:"name"`
	NIC    string `json:"nic"`
	NUMA   int    `json:"numa"`
	// CPUs are the processors to which it should go, Now those to which it goes;
	// empty means unknown.
	CPUs string `json:"cpus"`
	Now  string `json:"now"`
	// Right is true if Now is a subset of CPUs.
	Right bool `json:"right"`
}

// Make reads the machine and returns the plan.
//
// Errors: those of reading the machine's devices.
func Make(o Options) (*Plan, error) {
	o.Sys = cmp.Or(o.Sys, topology.SysRoot)
	o.Proc = cmp.Or(o.Proc, ProcRoot)
	m, err := topology.ReadMachine(o.Sys)
	if err != nil {
		return nil, err
	}
	p := &Plan{Nodes: len(m.Nodes), Threads: []Thread{}, IRQs: []IRQ{}}
	if p.Nodes < 2 {
		p.Idle = "only one NUMA node: all processors are equally near"
	}
	named := interrupts(o.Proc)
	for i := range m.NICs {
		c := &m.NICs[i]
		t := threadOf(m, topology.ID(c.Name), c.NUMA)
		p.Threads = append(p.Threads, t)
		p.addIRQs(o, c, named, t.CPUs)
	}
	slices.SortFunc(p.IRQs, func(a, b IRQ) int { return a.Number - b.Number })
	if o.Graph == nil {
		return p, nil
	}
	for i := range o.Graph.Devices {
		d := &o.Graph.Devices[i]
		if d.Kind == topology.Accelerator && !strings.Contains(string(d.ID), "/") {
			p.Threads = append(p.Threads, threadOf(m, d.ID, d.NUMA))
		}
	}
	return p, nil
}

// threadOf returns the processors for threads of a device.
func threadOf(m *topology.Machine, id topology.ID, node int) Thread {
	t := Thread{Device: id, NUMA: node}
	n, is := m.Node(node)
	cpus := n.CPUs
	if !is {
		t.NUMA = -1
		for _, other := range m.Nodes {
			cpus = append(cpus, other.CPUs...)
		}
		slices.Sort(cpus)
	}
	t.CPUs = topology.FormatCPUs(cpus)
	return t
}

// addIRQs adds the interrupts of a network card: those of its PCI device, and
// those with its name.
func (p *Plan) addIRQs(o Options, c *topology.Card, named map[int]string, cpus string) {
	numbers := map[int]bool{}
	if c.PCI != "" {
		entries, _ := os.ReadDir(filepath.Join(o.Sys, "bus/pci/devices", c.PCI, "msi_irqs"))
		for _, e := range entries {
			if n, err := strconv.Atoi(e.Name()); err == nil {
				numbers[n] = true
			}
		}
	}
	for n, name := range named {
		if name == c.Name || strings.HasPrefix(name, c.Name+"-") || strings.HasSuffix(name, "-"+c.Name) {
			numbers[n] = true
		}
	}
	for n := range numbers {
		now := read(o.Proc, "irq", strconv.Itoa(n), "smp_affinity_list")
		p.IRQs = append(p.IRQs, IRQ{
			Number: n, Name: named[n], NIC: c.Name, NUMA: c.NUMA, CPUs: cpus, Now: now, Right: inside(now, cpus),
		})
	}
}

// inside reports whether all processors of one list are in another.
func inside(list, of string) bool {
	some, err := topology.ParseCPUs(list)
	all, aerr := topology.ParseCPUs(of)
	if err != nil || aerr != nil || len(some) == 0 {
		return false
	}
	return !slices.ContainsFunc(some, func(c int) bool { return !slices.Contains(all, c) })
}

func read(parts ...string) string {
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// interrupts returns the names of all interrupts, by number: the last word of
// their lines.
func interrupts(proc string) map[int]string {
	out := map[int]string{}
	text := read(proc, "interrupts")
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		digits, is := strings.CutSuffix(words[0], ":")
		if n, err := strconv.Atoi(digits); is && err == nil {
			out[n] = words[len(words)-1]
		}
	}
	return out
}

// Result is the result for an interrupt.
type Result struct {
	IRQ IRQ `json:"irq"`
	// Done is true if it was moved. Problem is the reason if it could not be; an
	// interrupt that was right already has neither.
	Done    bool   `json:"done"`
	Problem string `json:"problem,omitempty"`
}

// ApplyIRQs moves the interrupts that are on the wrong processors. That needs
// root; refusals of the kernel, as for interrupts that it manages itself, are in
// the results. The change lasts until the machine reboots, or a program such as
// irqbalance moves them again.
func (p *Plan) ApplyIRQs(proc string) []Result {
	proc = cmp.Or(proc, ProcRoot)
	out := []Result{}
	for _, q := range p.IRQs {
		r := Result{IRQ: q}
		if !q.Right && q.CPUs != "" && p.Idle == "" {
			path := filepath.Join(proc, "irq", strconv.Itoa(q.Number), "smp_affinity_list")
			if err := write(path, q.CPUs); err != nil {
				r.Problem = err.Error()
			} else {
				r.Done = true
				r.IRQ.Now = read(path)
				r.IRQ.Right = inside(r.IRQ.Now, q.CPUs)
			}
		}
		out = append(out, r)
	}
	return out
}

// write writes an existing file.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	if _, err = f.WriteString(text); err != nil {
		f.Close() //nolint:errcheck // the write's error is more informative
		return fmt.Errorf("move an interrupt: %w", err)
	}
	return f.Close()
}
