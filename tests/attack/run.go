package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/lab"
	"github.com/hmcfs/hmcfs/tests/sandbox"
)

// The user IDs of victims and attackers. Root has mounted.
const (
	victimUID   = 4001
	attackerUID = 4101
)

// run is the state of one attack.
type run struct {
	settings
	lab   *lab.Lab
	dir   string
	start time.Time
	// groups holds the daemons' cgroups by the names of the nodes; empty without -cgroup.
	groups map[string]*kit.MemoryGroup
	// victims and attackers are the running processes.
	victims   []*player
	attackers []*player
	gauges    []*gauge

	mu sync.Mutex
	// +checklocks:mu
	violations int
}

// nodes is the number of nodes.
const nodes = 2

// inside runs the attack within the namespaces.
func inside(ctx context.Context, s settings, dir string) (err error) {
	if err = sandbox.Settle(dir); err != nil {
		return err
	}
	scratch := sandbox.Scratch(dir)
	// Other users need to pass through the directory, and squat paths for temporary files.
	if err = errors.Join(os.Chmod(dir, 0o711), os.Chmod(scratch, 0o777|os.ModeSticky)); err != nil {
		return err
	}
	r := &run{settings: s, dir: filepath.Join(scratch, "nodes"), start: time.Now(), groups: map[string]*kit.MemoryGroup{}}
	fmt.Fprintf(r.out, "seed %d, %v\n", s.seed, r.during())
	if err = os.Mkdir(r.dir, 0o711); err != nil {
		return err
	}
	o := lab.Options{Program: s.program, Dir: r.dir, Logs: dir, Nodes: nodes, Flags: []string{"--limit", "user-names=100000"}}
	if s.cgroup > 0 {
		defer func() { err = errors.Join(err, r.removeGroups()) }()
		if err = r.makeGroups(); err != nil {
			return err
		}
		o.Before = func(node string) []string { return r.groups[node].Before() }
		// The pages of a tmpfs would be charged to the group.
		o.State = filepath.Join(dir, "states")
	}
	if r.lab, err = lab.New(ctx, o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.lab.Close()) }()
	if err = r.attack(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.violations > 0 {
		fmt.Fprintf(r.out, "  VIOLATIONS: %d\n", r.violations)
		return sandbox.ErrFailed
	}
	fmt.Fprintln(r.out, "  no violation")
	return nil
}

func (r *run) during() time.Duration { return time.Duration(r.minutes * float64(time.Minute)) }

// violate prints that a property does not hold.
func (r *run) violate(format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations++
	fmt.Fprintf(r.out, "%8.3f s  VIOLATION %.1000s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, a...))
}

// alone returns the time for which the victims work undisturbed before the attack.
func (r *run) alone() time.Duration { return min(20*time.Second, r.during()/3) }

// attack runs the victims alone and under attack, and checks the results.
func (r *run) attack(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	defer r.endAll()
	r.sleep(ctx, r.alone()/4)
	r.phase("warm")
	r.sleep(ctx, r.alone())
	before := r.phase("alone")
	for _, n := range r.lab.Nodes {
		g := &gauge{node: n}
		g.before = g.read()
		r.gauges = append(r.gauges, g)
	}
	if err := r.startAttackers(); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "%8.3f s  the attack begins\n", time.Since(r.start).Seconds())
	r.watch(ctx, r.during())
	attacked := r.phase("attacked")
	r.endAttackers()
	fmt.Fprintf(r.out, "%8.3f s  the attack is over\n", time.Since(r.start).Seconds())
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing is judged")
	}
	r.judgeLatencies(before, attacked)
	for _, g := range r.gauges {
		r.judgeGauge(ctx, g)
	}
	return r.finish(ctx)
}

// watch measures the daemons during the attack, and makes requests to them as root.
func (r *run) watch(ctx context.Context, during time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	for asks := 0; r.sleep(ctx, 100*time.Millisecond); asks++ {
		for _, g := range r.gauges {
			g.most = g.most.max(g.read())
			if err := g.node.Runs(); err != nil {
				r.violate("daemon: %v", err)
				return
			}
		}
		if asks%10 == 0 {
			r.operate(ctx, r.lab.Nodes[asks/10%len(r.lab.Nodes)])
		}
	}
}

// operate requests the status as root and checks that it is that of the mount.
func (r *run) operate(ctx context.Context, n *lab.Node) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.slack)
	defer cancel()
	var st struct {
		MountPoint string `json:"mount_point"`
		PID        int    `json:"pid"`
	}
	text, err := n.Command(limit, "status", "--json", n.Dir).Output()
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if err != nil || st.MountPoint != n.Dir || st.PID != n.PID() {
		r.violate("root: hmcfs status %s: %v, answered for %s by process %d: %s", n.Dir, err, st.MountPoint, st.PID, text)
	}
}

// sleep waits for d. It returns false if the context ends first.
func (r *run) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// prepare waits for the nodes, creates the directories and starts the victims.
func (r *run) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.slack)
	defer cancel()
	for _, n := range r.lab.Nodes {
		if err := r.await(ctx, n); err != nil {
			return err
		}
		for _, device := range []string{"host", "sim0"} {
			if err := r.makeDirs(n, device); err != nil {
				return err
			}
		}
	}
	for i, n := range r.lab.Nodes {
		p, err := r.play(n, victimUID, role{Kind: "victim", Name: r.names()[i], Seed: r.seed + uint64(i)})
		if err != nil {
			return err
		}
		r.victims = append(r.victims, p)
	}
	return nil
}

// await waits until a node can list the files of the other.
func (r *run) await(ctx context.Context, n *lab.Node) error {
	for {
		_, err := os.ReadDir(n.At(r.otherOf(n), "sim0"))
		if err == nil {
			return nil
		}
		if !r.sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("node %s does not see the other: %w", n.Name, err)
		}
	}
}

// makeDirs creates the directories that all users share, and those of the victims.
func (r *run) makeDirs(n *lab.Node, device string) error {
	for _, name := range []string{"shared", "attackers"} {
		path := n.Path(device, name)
		if err := errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o777|os.ModeSticky)); err != nil {
			return err
		}
	}
	for _, v := range r.names() {
		path := n.Path(device, v)
		if err := errors.Join(os.Mkdir(path, 0o755), os.Chown(path, victimUID, victimUID)); err != nil {
			return err
		}
	}
	return nil
}

// names returns the names of the victims.
func (r *run) names() (names []string) {
	for _, n := range r.lab.Nodes {
		names = append(names, "victim-"+n.Name)
	}
	return names
}

func (r *run) otherOf(n *lab.Node) *lab.Node {
	for _, o := range r.lab.Nodes {
		if o != n {
			return o
		}
	}
	return nil
}

// startAttackers starts two attackers on one node and one on the other.
func (r *run) startAttackers() error {
	for i, n := range []*lab.Node{r.lab.Nodes[0], r.lab.Nodes[0], r.lab.Nodes[1]} {
		p, err := r.play(n, attackerUID+i, role{Kind: "attacker", Name: fmt.Sprint("attacker", i), Seed: r.seed*31 + uint64(i)})
		if err != nil {
			return err
		}
		r.attackers = append(r.attackers, p)
	}
	return nil
}

// phase ends a phase of all victims, and returns the durations of the operations in it.
func (r *run) phase(name string) map[string]latency {
	all := map[string]latency{}
	for _, p := range r.victims {
		l, err := p.phase(name, r.slack)
		if err != nil {
			r.violate("victim: %v", err)
		}
		for kind, took := range l {
			have := all[kind]
			all[kind] = latency{have.Count + took.Count, max(have.P50, took.P50), max(have.P99, took.P99), max(have.Max, took.Max)}
		}
	}
	return all
}

// enough is the number of operations from which on a percentile is meaningful.
const enough = 100

// kindMove is the kind of renames between directories. Their durations are reported, but
// not checked: the kernel runs one of them at a time for each file system
// (s_vfs_rename_mutex), so they wait for those of all users and, below nodes/, for the
// other node. hmcfs can't reorder them.
const kindMove = "move"

// judgeLatencies compares the 99th percentiles before and during the attack.
func (r *run) judgeLatencies(before, attacked map[string]latency) {
	fmt.Fprintf(r.out, "  %-28s %8s %10s %10s %8s %10s %10s %8s\n", "the victims'", "alone", "p50", "p99", "attacked", "p50", "p99", "ratio")
	for _, kind := range slices.Sorted(maps.Keys(before)) {
		b, a := before[kind], attacked[kind]
		ratio := float64(a.P99) / float64(max(b.P99, 1))
		round := func(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
		fmt.Fprintf(r.out, "  %-28s %8d %10v %10v %8d %10v %10v %8.1f\n", kind, b.Count, round(b.P50), round(b.P99), a.Count, round(a.P50), round(a.P99), ratio)
		if r.ratio > 0 && ratio > r.ratio && !strings.HasPrefix(kind, kindMove+" ") && b.Count >= enough && a.Count >= enough {
			r.violate("latency: %s: p99 %v, alone %v: %.1f times", kind, a.P99, b.P99, ratio)
		}
	}
}

// finish ends the victims, checks the records, and mounts again.
func (r *run) finish(ctx context.Context) error {
	var files []left
	for _, p := range r.victims {
		if err := p.end(r.slack); err != nil {
			r.violate("victim: %v", err)
		}
		files = append(files, p.files...)
	}
	r.victims = nil
	for _, n := range r.lab.Nodes {
		for _, device := range []string{"host", "sim0"} {
			if err := os.RemoveAll(n.Path(device, "attackers")); err != nil {
				r.violate("root: remove what attackers have made: %v", err)
			}
		}
		r.fsck(ctx, n, n.Dir)
	}
	if r.oom {
		if err := r.killForMemory(ctx, r.lab.Nodes[0]); err != nil {
			return err
		}
	}
	for _, n := range r.lab.Nodes {
		if n.PID() != 0 {
			if err := n.Unmount(ctx, "--keep"); err != nil {
				r.violate("unmount: %v", err)
				continue
			}
			r.fsck(ctx, n, "--state-dir", n.StateDir())
		}
		if err := n.Start(ctx); err != nil {
			r.violate("mount again: %v", err)
		}
	}
	r.compare(files)
	for _, n := range r.lab.Nodes {
		if err := n.Unmount(ctx); err != nil {
			r.violate("unmount: %v", err)
		}
	}
	return nil
}

// fsck checks that hmcfs fsck finds no inconsistency. Lost objects of devices whose memory
// ended with a daemon are not one.
func (r *run) fsck(ctx context.Context, n *lab.Node, args ...string) {
	const lost = 4
	limit, cancel := context.WithTimeout(ctx, 2*r.slack)
	defer cancel()
	cmd := n.Command(limit, append([]string{"fsck"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil && (args[0] == n.Dir || cmd.ProcessState.ExitCode() != lost) {
		r.violate("fsck %v: %v: %.500s", args, err, out)
	}
}

// compare checks as root that the victims' host files are unchanged.
func (r *run) compare(files []left) {
	compared := 0
	for _, f := range files {
		if !slices.Contains(strings.Split(f.Path, "/"), "host") {
			continue
		}
		compared++
		content, err := os.ReadFile(f.Path)
		if at := kit.DiffAt(content, f.Seed, 0); err != nil || at >= 0 || len(content) != f.Size {
			r.violate("after the next mount: %s: %d bytes, wrong from %d on, %v; want %d", f.Path, len(content), at, err, f.Size)
		}
	}
	fmt.Fprintf(r.out, "  %d host files are compared after the next mount\n", compared)
}
