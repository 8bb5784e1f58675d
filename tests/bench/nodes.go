package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
	"github.com/hmcfs/hmcfs/tests/netns"
)

// nodes holds the mounts with which the rows of a cluster are measured: two mounts in network
// namespaces that form a cluster, two on one host, and one outside any cluster.
type nodes struct {
	measure.Undo

	opts options
	// peers measures the cable itself.
	peers *peers
	cable *netns.Cable
	// a and b are at the two ends of the cable, c and d on one host; alone is on the same host
	// as c.
	a, b, c, d, alone *member
}

// member is the mount of one node.
type member struct {
	measure.Mount

	name string
}

// nodePort is the port on which nodes listen.
const nodePort = "7070"

// setUp starts all daemons.
func (n *nodes) setUp(ctx context.Context) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and mounts need root")
	}
	p := &peers{opts: n.opts}
	n.peers = p
	if p.dir, err = n.Folder(); err != nil {
		return err
	}
	n.Later(p.Close)
	p.secret = filepath.Join(p.dir, "secret")
	if n.cable, err = netns.New(ctx); err != nil {
		return err
	}
	n.Later(n.cable.Close)
	p.veth = &spot{host: n.cable.Right.IPv4, serve: n.cable.Right.Command, run: n.cable.Left.Command}
	if err = p.serve(ctx, p.veth); err != nil {
		return err
	}
	return n.mountAll(ctx)
}

// mountAll starts the five daemons.
func (n *nodes) mountAll(ctx context.Context) (err error) {
	left, right := n.cable.Left, n.cable.Right
	at := func(s *netns.Space) string { return s.IPv4 + ":" + nodePort }
	socket := func(name string) string { return "unix:" + filepath.Join(n.peers.dir, name+".sock") }
	for _, d := range []struct {
		to      **member
		name    string
		command measure.Command
		joins   []string
	}{
		{&n.a, "a", left.Command, n.joins(at(left), "b="+at(right))},
		{&n.b, "b", right.Command, n.joins(at(right), "a="+at(left))},
		{&n.c, "c", exec.CommandContext, n.joins(socket("c"), "d="+socket("d"))},
		{&n.d, "d", exec.CommandContext, n.joins(socket("d"), "c="+socket("c"))},
		{&n.alone, "alone", exec.CommandContext, nil},
	} {
		if *d.to, err = n.mount(ctx, d.name, d.command, d.joins...); err != nil {
			return err
		}
	}
	return nil
}

// joins returns the flags of a node of a static list.
func (n *nodes) joins(listen, peer string) []string {
	return []string{"--listen", listen, "--peer", peer, "--secret-file", n.peers.secret, "--squash", "none"}
}

// mount starts a daemon with devices of every kind; Close unmounts.
func (n *nodes) mount(ctx context.Context, name string, command measure.Command, joins ...string) (*member, error) {
	m := &member{name: name, Mount: measure.Mount{Program: n.opts.hmcfs, Point: filepath.Join(n.peers.dir, name), Command: command}}
	size := fmt.Sprintf("size=%d", uint64(2*n.opts.size+devices.GiB/2))
	flags := measure.Devices("host,"+size, "opencl:0,"+size, "sim:0,"+size, "sim:1,"+size)
	if len(joins) > 0 {
		flags = append(append(flags, "--node", name), joins...)
	}
	if err := m.Start(ctx, flags...); err != nil {
		return nil, err
	}
	n.Later(func() error { return m.Unmount(ctx) })
	return m, nil
}

// at returns a path of another node on the node's mount.
func (m *member) at(other *member, parts ...string) string {
	return m.Path(append([]string{"nodes", other.name}, parts...)...)
}

// shell runs a program where the mount is visible.
func (m *member) shell(ctx context.Context, name string, args ...string) error {
	_, err := measure.Output(m.Command(ctx, name, args...))
	return err
}

// facts collects facts about the machine and its programs.
func (n *nodes) facts(ctx context.Context) *facts {
	f := newFacts(ctx, n.opts)
	f.add("Go", runtime.Version())
	f.add("cp", measure.Said(ctx, "cp", "--version"))
	f.add("iperf3", measure.Said(ctx, "iperf3", "--version"))
	f.last = fmt.Sprintf("- files of %v, medians of %d rounds; every node is a daemon of its own, and all share the two processors\n\n", n.opts.size, n.opts.rounds)
	return f
}

// rows lists the rows of the table in order.
func (n *nodes) rows() []row {
	return slices.Concat(n.cableCopies(), n.hostCopies(), n.questionRows(), n.besideRows())
}
