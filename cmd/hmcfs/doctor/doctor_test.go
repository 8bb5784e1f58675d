package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/affinity"
)

// machine is one with the given files.
func machine(t *testing.T, files map[string]string) *Machine {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		at := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &Machine{
		Root: root, UID: 1000, Locked: 1 << 30, Files: 1 << 20,
		Look: func(string) (string, error) { return "", errors.New("not found") },
	}
}

// wants checks that there is a finding of a level which says something.
func wants(t *testing.T, r *Report, level Level, part string) {
	t.Helper()
	for _, f := range r.Findings {
		if strings.Contains(f.What, part) {
			if f.Level != level {
				t.Errorf("%q is %s, want %s", f.What, f.Level, level)
			}
			if f.Level == Problem && f.Remedy == "" {
				t.Errorf("%q has no remedy", f.What)
			}
			return
		}
	}
	t.Errorf("nothing says %q: %+v", part, r.Findings)
}

func TestKernel(t *testing.T) {
	r := &Report{}
	r.Kernel(machine(t, map[string]string{"proc/sys/kernel/osrelease": "6.1.0-13-amd64\n"}))
	wants(t, r, Note, "Linux 6.1.0-13-amd64 has no FUSE passthrough")
	wants(t, r, Problem, "no /dev/fuse")
	if r.Worst() != Problem {
		t.Errorf("worst is %s", r.Worst())
	}
	r = &Report{}
	r.Kernel(machine(t, map[string]string{"proc/sys/kernel/osrelease": "6.18.4\n", "dev/fuse": "", "proc/sys/fs/fuse/max_pages_limit": "256\n"}))
	wants(t, r, OK, "Linux 6.18.4 has FUSE passthrough")
	wants(t, r, OK, "256 pages")
	if r.Worst() != OK {
		t.Errorf("worst is %s: %+v", r.Worst(), r.Findings)
	}
	for _, release := range []string{"6.10-rc3", "7.0-amd64"} {
		r = &Report{}
		r.Kernel(machine(t, map[string]string{"proc/sys/kernel/osrelease": release + "\n"}))
		wants(t, r, OK, "Linux "+release+" has FUSE passthrough")
	}
	for _, release := range []string{"", "unknown"} {
		r = &Report{}
		r.Kernel(machine(t, map[string]string{"proc/sys/kernel/osrelease": release, "dev/fuse": ""}))
		wants(t, r, Note, "not known")
	}
}

func TestPrivileges(t *testing.T) {
	const all, none = "Name:\thmcfs\nCapEff:\t000001ffffffffff\n", "CapEff:\t0000000000000000\n"
	r := &Report{}
	r.Privileges(machine(t, map[string]string{"proc/self/status": all}))
	wants(t, r, OK, "CAP_SYS_ADMIN")

	m := machine(t, map[string]string{"proc/self/status": none})
	m.UID = 0
	r = &Report{}
	r.Privileges(m)
	wants(t, r, Problem, "root without CAP_SYS_ADMIN")

	m = machine(t, map[string]string{"proc/self/status": none, "etc/fuse.conf": "# x\nuser_allow_other\n"})
	m.Locked, m.Files = 8<<20, 1024
	r = &Report{}
	r.Privileges(m)
	wants(t, r, Problem, "no fusermount3")
	wants(t, r, Note, "8.0 MiB of memory may be locked")
	wants(t, r, Note, "1024 files")

	m.Look = func(string) (string, error) { return "/usr/bin/fusermount3", nil }
	r = &Report{}
	r.Privileges(m)
	wants(t, r, Note, "without passthrough")
	if r.Worst() != Note {
		t.Errorf("worst is %s", r.Worst())
	}
}

func TestDevicesAndEnvironment(t *testing.T) {
	r := &Report{}
	r.Devices([]Family{{Name: "host", Devices: []devices.Info{{Name: "host"}}}, {Name: "cuda", Reason: "no library"}, {Name: "sim", Reason: "on request"}})
	r.Environment(nil)
	wants(t, r, OK, "host: host")
	wants(t, r, Note, "cuda: none, because no library")
	wants(t, r, Note, "no accelerator")
	r = &Report{}
	r.Devices([]Family{{Name: "cuda", Devices: []devices.Info{{Name: "cuda0", Model: "H200"}}}})
	r.Environment(errors.Join(errors.New("slots: 1"), errors.New("numa: x")))
	wants(t, r, OK, "cuda0 (H200)")
	wants(t, r, Problem, "numa: x")
	if len(r.Findings) != 3 {
		t.Errorf("%+v", r.Findings)
	}
}

func TestPlacement(t *testing.T) {
	r := &Report{}
	r.Placement(&affinity.Plan{Nodes: 1, Idle: "one NUMA node"})
	wants(t, r, OK, "one NUMA node")
	r = &Report{}
	r.Placement(&affinity.Plan{Nodes: 2, IRQs: []affinity.IRQ{{Number: 1, CPUs: "4-7", Now: "0"}, {Number: 2, CPUs: "4-7", Now: "4", Right: true}}})
	wants(t, r, Note, "1 of 2 interrupts")
	r.Moved([]affinity.Result{{Done: true}, {IRQ: affinity.IRQ{Number: 2, NIC: "eth1"}, Problem: "input/output error"}})
	wants(t, r, Note, "interrupt 2 of eth1 was not moved: input/output error")
	wants(t, r, OK, "1 interrupts moved")
}

func TestThreads(t *testing.T) {
	r := &Report{}
	m := machine(t, map[string]string{
		"proc/7/task/7/status": "Cpus_allowed:\t3\nCpus_allowed_list:\t0-1\n",
		"proc/7/task/8/status": "Cpus_allowed_list:\t0-1\n",
		"proc/7/task/9/status": "Cpus_allowed_list:\t1\n",
	})
	r.Threads(m, 7)
	wants(t, r, OK, "1 on 1, 2 on 0-1")
	r.Threads(m, 8)
	wants(t, r, Note, "process 8")
}
