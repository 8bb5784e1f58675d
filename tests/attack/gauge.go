package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/lab"
)

// gauge measures the resources of a daemon.
type gauge struct {
	node         *lab.Node
	before, most reading
}

// reading is one measurement of a daemon.
type reading struct {
	// Anon is the resident anonymous memory. Sockets, Files and Threads are counts; Files
	// excludes sockets and files in the state directory.
	Anon                    devices.Size
	Sockets, Files, Threads int
}

func (a reading) max(b reading) reading {
	return reading{max(a.Anon, b.Anon), max(a.Sockets, b.Sockets), max(a.Files, b.Files), max(a.Threads, b.Threads)}
}

func (a reading) String() string {
	return fmt.Sprintf("%d MiB, %d sockets, %d other descriptors, %d threads", a.Anon/devices.MiB, a.Sockets, a.Files, a.Threads)
}

// read measures the daemon through /proc. It returns zeros if the process has ended.
func (g *gauge) read() (now reading) {
	proc := fmt.Sprintf("/proc/%d", g.node.PID())
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return now
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		n, nerr := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(value, "kB")))
		switch {
		case nerr != nil:
		case name == "RssAnon":
			now.Anon = devices.Size(n) * devices.KiB
		case name == "Threads":
			now.Threads = n
		}
	}
	state := g.node.StateDir()
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return now
	}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(proc, "fd", fd.Name()))
		switch {
		case err != nil || strings.HasPrefix(to, state):
		case strings.HasPrefix(to, "socket:"):
			now.Sockets++
		default:
			now.Files++
		}
	}
	return now
}

// overhead bounds the memory of the daemon itself, for which docs/operations.md states
// about 100 MiB. The sim device keeps its objects in the daemon's memory, of which Go's
// collector needs at most twice as much.
const (
	overhead = 200 * devices.MiB
	simSize  = 256 * devices.MiB
	// mostThreads bounds the threads; Go keeps idle ones.
	mostThreads = 400
	// spare is the permitted increase of the number of descriptors after the attack.
	spare = 16
)

// judgeGauge checks that memory and threads were bounded, and waits until the number of
// descriptors is back to normal.
func (r *run) judgeGauge(ctx context.Context, g *gauge) {
	if g.most.Anon > overhead+simSize {
		r.violate("memory: the daemon of %s took %d MiB, of which %d are the sim device's", g.node.Name, g.most.Anon/devices.MiB, simSize/devices.MiB)
	}
	if g.most.Threads > mostThreads {
		r.violate("threads: the daemon of %s had %d", g.node.Name, g.most.Threads)
	}
	var now reading
	for deadline := time.Now().Add(2 * r.slack); ; {
		now = g.read()
		back := now.Sockets <= g.before.Sockets+spare && now.Files <= g.before.Files+spare
		if back {
			break
		}
		if !r.sleep(ctx, 100*time.Millisecond) || time.Now().After(deadline) {
			r.violate("descriptors: those of the daemon of %s do not come back: %v, before the attack %v: %v", g.node.Name, now, g.before, g.kinds())
			break
		}
	}
	fmt.Fprintf(r.out, "  daemon of %s: before %v; at most %v; afterwards %v\n", g.node.Name, g.before, g.most, now)
}

// kinds counts the descriptors by the directory or type that they refer to, for a report.
func (g *gauge) kinds() map[string]int {
	counts := map[string]int{}
	dir := fmt.Sprintf("/proc/%d/fd", g.node.PID())
	fds, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil {
			if strings.HasPrefix(to, "/") {
				to = filepath.Dir(to)
			} else {
				to, _, _ = strings.Cut(to, ":[")
			}
			counts[to]++
		}
	}
	return counts
}

// makeGroups creates a group for each node's daemon.
func (r *run) makeGroups() error {
	for i := range nodes {
		name := lab.NodeName(i)
		g, err := kit.NewMemoryGroup("hmcfs-attack-"+name, uint64(r.cgroup))
		if err != nil {
			return err
		}
		r.groups[name] = g
	}
	return nil
}

func (r *run) removeGroups() error {
	var errs []error
	for _, g := range r.groups {
		errs = append(errs, g.Remove())
	}
	return errors.Join(errs...)
}
