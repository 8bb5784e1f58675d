package transport_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/affinity"
	"github.com/hmcfs/hmcfs/transport/topology"
)

// TestStagedCopyRunsWhereThePlanSays makes two NUMA nodes from the existing
// processors, and checks at each transfer of a staged copy where its thread runs.
func TestStagedCopyRunsWhereThePlanSays(t *testing.T) {
	kit.Check(t)
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for c := range 1024 {
		if all.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	if len(cpus) < 2 {
		t.Skip("one processor is no two nodes")
	}
	m := &topology.Machine{Nodes: []topology.Node{{ID: 0, CPUs: cpus[:1]}, {ID: 1, CPUs: cpus[1:]}}}
	pinner := affinity.NewPinner(m)
	e := newEngine(t, transport.Options{Enter: pinner.Enter, ChunkSize: 4 * devices.KiB})
	for node := range 2 {
		var right, wrong atomic.Int64
		look := func(string) error {
			var now unix.CPUSet
			if err := unix.SchedGetaffinity(0, &now); err != nil {
				return err
			}
			for _, n := range m.Nodes {
				if n.ID != node && now.IsSet(n.CPUs[0]) {
					wrong.Add(1)
					return nil
				}
			}
			right.Add(1)
			return nil
		}
		a, b := newRAM("a"), newRAM("b")
		a.numa, b.numa = node+1, node+1
		const size = 256 * devices.KiB
		src, dst := memoryOn(t, a, size), memoryOn(t, b, size)
		a.before, b.before = look, look
		path, err := e.Copy(t.Context(), transport.DeviceSpan(dst), transport.DeviceSpan(src))
		if err != nil || path != transport.PathStaged {
			t.Fatalf("copied by %s, %v", path, err)
		}
		if wrong.Load() > 0 || right.Load() != 2*int64(size/(4*devices.KiB)) {
			t.Errorf("node %d: %d transfers on its processors, %d on others", node, right.Load(), wrong.Load())
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != all {
		t.Errorf("behind the copy the thread has other processors, %v", err)
	}
}
