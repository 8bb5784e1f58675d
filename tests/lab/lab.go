package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/tests/etcdkit"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/netns"
)

// Settings of the nodes with which failures are detected soon.
const (
	Lease       = 4 * time.Second
	NodeTimeout = 3 * time.Second
)

// Options configures a Lab.
type Options struct {
	// Program is the path of hmcfs.
	Program string
	// Dir is the directory for all files, Logs the one of the daemons' logs, and State the one of
	// the state directories, by default Dir.
	Dir, Logs, State string
	// Nodes is the number of nodes.
	Nodes int
	// Flags are further flags of each mount.
	Flags []string
	// Before returns the first words of the command line of a node's daemon: a program that runs
	// the rest. It may be nil.
	Before func(node string) []string
	// Etcd makes the nodes use an etcd of three members instead of a fixed list.
	Etcd bool
}

// Lab is a running cluster.
type Lab struct {
	Net   *netns.Net
	Nodes []*Node
	// Etcd is nil with a fixed list; Members are the spaces of its servers.
	Etcd    *etcdkit.Cluster
	Members []*netns.Space

	opts   Options
	secret string
}

const (
	members = 3
	port    = "7070"
)

// New creates the machines and starts all daemons. After an error nothing is left behind.
func New(ctx context.Context, o Options) (_ *Lab, err error) {
	if o.State == "" {
		o.State = o.Dir
	}
	l := &Lab{opts: o, secret: filepath.Join(o.Dir, "secret")}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if err = os.WriteFile(l.secret, fmt.Appendf(nil, "%x\n", kit.Bytes(1, 0, 32)), 0o600); err != nil {
		return l, err
	}
	machines := o.Nodes
	if o.Etcd {
		machines += members
	}
	if l.Net, err = netns.NewRelayed(ctx, machines); err != nil {
		return l, err
	}
	if o.Etcd {
		l.Members = l.Net.Spaces[o.Nodes:]
		if err = l.startEtcd(ctx); err != nil {
			return l, err
		}
	}
	for i := range o.Nodes {
		name := NodeName(i)
		n := &Node{
			Name: name, Space: l.Net.Spaces[i], Dir: filepath.Join(o.Dir, name, "mnt"),
			lab: l, log: filepath.Join(o.Logs, "node-"+name+".log"),
		}
		for _, dir := range []string{n.Dir, filepath.Dir(n.StateDir())} {
			if err = os.MkdirAll(dir, 0o755); err != nil {
				return l, err
			}
		}
		l.Nodes = append(l.Nodes, n)
	}
	started := make(chan error)
	for _, n := range l.Nodes {
		go func() { started <- n.Start(ctx) }()
	}
	for range l.Nodes {
		err = errors.Join(err, <-started)
	}
	return l, err
}

func (l *Lab) startEtcd(ctx context.Context) (err error) {
	var all []etcdkit.Options
	for _, s := range l.Members {
		all = append(all, etcdkit.Options{Host: s.IPv4, Enter: s.Enter, Dial: s.Dial})
	}
	l.Etcd, err = etcdkit.NewCluster(ctx, all)
	return err
}

// NodeName returns the name of a node by its index.
func NodeName(i int) string { return string(rune('a' + i)) }

// flags returns the flags that make a mount a node.
func (l *Lab) flags(name string) []string {
	out := []string{
		"--node", name, "--lease", Lease.String(), "--node-timeout", NodeTimeout.String(), "--squash", "none",
		"--secret-file", l.secret, "--transport", "tcp", "--allow-other",
		"--device", "host,size=1GiB", "--device", "sim:0,size=256MiB",
	}
	if l.Etcd != nil {
		out = append(out, "--cluster", "etcd://"+strings.Join(l.Etcd.Endpoints(), ",")+"/lab")
	}
	for i, s := range l.Net.Spaces[:l.opts.Nodes] {
		at := s.IPv4 + ":" + port
		switch {
		case NodeName(i) == name:
			out = append(out, "--listen", at)
		case l.Etcd == nil:
			out = append(out, "--peer", NodeName(i)+"="+at)
		}
	}
	return append(out, l.opts.Flags...)
}

// Close ends all daemons and servers, and removes the mounts and networks.
func (l *Lab) Close() error {
	var errs []error
	for _, n := range l.Nodes {
		errs = append(errs, n.close())
	}
	if l.Etcd != nil {
		errs = append(errs, l.Etcd.Close())
	}
	if l.Net != nil {
		errs = append(errs, l.Net.Close())
	}
	return errors.Join(errs...)
}
