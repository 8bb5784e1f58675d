package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/tests/netns"
)

// nodes are those with which the rows of a cluster are measured: two mounts in network
// namespaces that know each other, two on one host, and one that knows nobody.
type nodes struct {
	undo

	opts options
	// peers measures the cable itself.
	peers *peers
	cable *netns.Cable
	// a and b are on the two ends of the cable, c and d on one host; alone is
	// beside c.
	a, b, c, d, alone *member
}

// member is one mount of a node.
type member struct {
	name  string
	point string
	run   string // its runtime directory
	// command makes a command where the mount is seen.
	command func(ctx context.Context, name string, args ...string) *exec.Cmd
}

// nodePort is that at which nodes listen.
const nodePort = "7070"

// newNodes sets everything up, or leaves nothing behind.
func newNodes(ctx context.Context, o options) (n *nodes, err error) {
	n = &nodes{opts: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if os.Geteuid() != 0 {
		return n, errors.New("network namespaces and mounts need root")
	}
	if n.opts.hmcfs, err = filepath.Abs(o.hmcfs); err != nil {
		return n, err
	}
	p := &peers{opts: n.opts}
	n.peers = p
	if p.dir, err = n.folder(); err != nil {
		return n, err
	}
	n.later(p.close)
	p.secret = filepath.Join(p.dir, "secret")
	if n.cable, err = netns.New(ctx); err != nil {
		return n, err
	}
	n.later(n.cable.Close)
	p.veth = &spot{host: n.cable.Right.IPv4, serve: n.cable.Right.Command, run: n.cable.Left.Command}
	if err = p.serve(ctx, p.veth); err != nil {
		return n, err
	}
	return n, n.mountAll(ctx)
}

// mountAll starts the five daemons.
func (n *nodes) mountAll(ctx context.Context) (err error) {
	left, right := n.cable.Left, n.cable.Right
	at := func(s *netns.Space) string { return s.IPv4 + ":" + nodePort }
	if n.a, err = n.mount(ctx, "a", left.Command, n.joins(at(left), "b="+at(right))...); err != nil {
		return err
	}
	if n.b, err = n.mount(ctx, "b", right.Command, n.joins(at(right), "a="+at(left))...); err != nil {
		return err
	}
	socket := func(name string) string { return "unix:" + filepath.Join(n.peers.dir, name+".sock") }
	if n.c, err = n.mount(ctx, "c", exec.CommandContext, n.joins(socket("c"), "d="+socket("d"))...); err != nil {
		return err
	}
	if n.d, err = n.mount(ctx, "d", exec.CommandContext, n.joins(socket("d"), "c="+socket("c"))...); err != nil {
		return err
	}
	n.alone, err = n.mount(ctx, "alone", exec.CommandContext)
	return err
}

// joins are the flags of a node of a static list.
func (n *nodes) joins(listen, peer string) []string {
	return []string{"--listen", listen, "--peer", peer, "--secret-file", n.peers.secret, "--squash", "none"}
}

// mount starts a daemon with devices of every kind; close unmounts.
func (n *nodes) mount(ctx context.Context, name string, command func(context.Context, string, ...string) *exec.Cmd, joins ...string) (*member, error) {
	m := &member{name: name, point: filepath.Join(n.peers.dir, name), command: command}
	m.run = m.point + ".run"
	if err := os.MkdirAll(m.point, 0o700); err != nil {
		return nil, err
	}
	size := fmt.Sprintf("size=%d", uint64(2*n.opts.size+devices.GiB/2))
	args := []string{"mount", "--state-dir", m.point + ".state", "--runtime-dir", m.run}
	for _, device := range []string{"host," + size, "opencl:0," + size, "sim:0," + size, "sim:1," + size} {
		args = append(args, "--device", device)
	}
	if len(joins) > 0 {
		args = append(args, "--node", name)
	}
	if _, err := output(command(ctx, n.opts.hmcfs, append(append(args, joins...), m.point)...)); err != nil {
		return nil, err
	}
	n.later(func() error { return n.unmount(ctx, m) })
	return m, nil
}

// unmount ends a daemon, or kills it. It works after the context has ended, too.
func (n *nodes) unmount(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	st, known := m.status(ctx)
	_, err := output(m.command(ctx, n.opts.hmcfs, "umount", m.point))
	if err == nil || known != nil {
		return err
	}
	killed := exec.CommandContext(ctx, "kill", "-9", strconv.Itoa(st.PID)).Run()
	detached := m.command(ctx, "umount", "-l", m.point).Run()
	return errors.Join(err, killed, detached)
}

// in is a path on the node's mount.
func (m *member) in(parts ...string) string {
	return filepath.Join(append([]string{m.point}, parts...)...)
}

// at is a path of another node on the node's mount.
func (m *member) at(other *member, parts ...string) string {
	return m.in(append([]string{"nodes", other.name}, parts...)...)
}

// status asks the daemon.
func (m *member) status(ctx context.Context) (adminapi.Status, error) {
	return client.New(m.run+"/admin.sock").Status(ctx, false)
}

// shell runs a program where the mount is seen, and returns what it prints.
func (m *member) shell(ctx context.Context, name string, args ...string) (string, error) {
	out, err := output(m.command(ctx, name, args...))
	return string(out), err
}

// child runs a task of this program where the mount is seen, which answers with
// a number.
func (m *member) child(ctx context.Context, args ...string) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	out, err := m.shell(ctx, self, append([]string{childArg}, args...)...)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(out), 64)
}

// runNodes measures the rows of a cluster, and writes them where that is asked
// for.
func runNodes(ctx context.Context, o options, out, progress io.Writer) (err error) {
	if o.size, err = devices.ParseSize(o.sizeArg); err != nil {
		return err
	}
	n, err := newNodes(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	return table(ctx, o, n, nodesBegin, out, progress)
}

// facts looks at the machine and its programs.
func (n *nodes) facts(ctx context.Context) *facts {
	f := &facts{loadBefore: load()}
	f.machine(ctx, n.opts.hmcfs)
	f.add("Go", runtime.Version())
	f.add("cp", said(ctx, "cp", "--version"))
	f.add("iperf3", said(ctx, "iperf3", "--version"))
	f.last = fmt.Sprintf("- files of %v, medians of %d rounds; every node is a daemon of its own, and all share the two processors\n\n", n.opts.size, n.opts.rounds)
	return f
}

// rows lists the rows of the table in order.
func (n *nodes) rows() []row {
	return slices.Concat(n.cableCopies(), n.hostCopies(), n.questionRows(), n.besideRows())
}
