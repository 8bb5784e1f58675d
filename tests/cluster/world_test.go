package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/etcdkit"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
	"github.com/hmcfs/hmcfs/tests/netns"
)

// patience is the timeout for something that happens at once, or within a lease, on a busy
// machine.
const patience = 60 * time.Second

// The options of the tests' nodes, which keep timeouts short.
const (
	lease       = "2s"
	nodeTimeout = "3s"
)

// port is the port of each node, which has its own address.
const port = "7070"

// worldOptions describe a world.
type worldOptions struct {
	// machines is their number; 0 means 3.
	machines int
	// etcd is nil for a fixed list of nodes.
	etcd *etcdkit.Options
	// devices are the devices of each node; nil means host and sim0.
	devices []string
	// extra holds further flags of each mount.
	extra []string
	// here puts all nodes on this machine, where they may use what nodes of one machine share.
	// Otherwise the network is their only connection.
	here bool
	// alone admits only the user that mounts.
	alone bool
	// flags, if not nil, returns further flags of one mount.
	flags func(name string) []string
}

// world holds machines and what they share.
type world struct {
	t      *testing.T
	opts   worldOptions
	net    *netns.Net
	etcd   *etcdkit.Server
	secret string
	nodes  []*node
	// at holds the address of each machine.
	at []string
}

// node is the mount of one machine.
type node struct {
	*mnt.M

	w     *world
	name  string
	space *netns.Space
	// restarted is true if the daemon is not the first one.
	restarted bool
}

// plainEtcd returns options of an etcd without authentication.
func plainEtcd() *etcdkit.Options { return &etcdkit.Options{} }

// newWorld creates the machines, without mounts.
func newWorld(t *testing.T, o worldOptions) *world {
	t.Helper()
	kit.Require(t, "root", "fuse", "tool:ip", "tool:tc", "tool:nsenter")
	if o.etcd != nil {
		kit.Require(t, "tool:etcd")
	}
	kit.Check(t)
	if o.machines == 0 {
		o.machines = 3
	}
	if len(o.devices) == 0 {
		o.devices = []string{"host,size=256MiB", "sim:0,size=256MiB"}
	}
	w := &world{t: t, opts: o, secret: filepath.Join(mnt.TempDir(t), "secret")}
	must(t, os.WriteFile(w.secret, fmt.Appendf(nil, "%x\n", kit.Bytes(1, 0, 32)), 0o600))
	if o.here {
		for range o.machines {
			w.at = append(w.at, freeAddress(t))
		}
		if o.etcd != nil {
			w.etcd = etcdkit.Start(t, *o.etcd)
		}
		return w
	}
	var err error
	w.net, err = netns.NewNet(t.Context(), o.machines)
	must(t, err)
	t.Cleanup(func() {
		if err := w.net.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, s := range w.net.Spaces {
		w.at = append(w.at, s.IPv4+":"+port)
	}
	if o.etcd != nil {
		with := *o.etcd
		with.Host, with.Enter = w.net.Hub.IPv4, w.net.Hub.Enter
		w.etcd = etcdkit.Start(t, with)
	}
	return w
}

// freeAddress returns an unused address of this machine.
func freeAddress(t testing.TB) string {
	t.Helper()
	const host = "127.0.0.1"
	port, err := kit.FreePort(host)
	must(t, err)
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// newNodes creates the machines, with nodes a, b, c, one on each, which know each other.
func newNodes(t *testing.T, o worldOptions) (*world, []*node) {
	t.Helper()
	w := newWorld(t, o)
	for i := range w.at {
		w.mount(nodeName(i), i)
	}
	w.meet()
	return w, w.nodes
}

func nodeName(i int) string { return string(rune('a' + i)) }

// mount mounts a node on a machine.
func (w *world) mount(name string, machine int) *node {
	w.t.Helper()
	n := w.prepare(name, machine)
	n.Start()
	return n
}

// prepare does the same without mounting, and with further flags.
func (w *world) prepare(name string, machine int, extra ...string) *node {
	w.t.Helper()
	n := &node{w: w, name: name}
	o := mnt.Options{
		Devices: w.opts.devices, AllowOther: !w.opts.alone,
		Extra: slices.Concat(w.flags(name, machine), w.opts.extra, extra),
	}
	if w.net != nil {
		n.space = w.net.Spaces[machine]
		o.Enter = n.space.Enter
	}
	n.M = mnt.Prepare(w.t, o)
	w.nodes = append(w.nodes, n)
	return n
}

// slowNode has a node wait for another one that is slow, where that must not count as absent.
func slowNode(string) []string { return []string{"--node-timeout", "60s"} }

// flags returns the flags that make a mount a node.
func (w *world) flags(name string, machine int) []string {
	out := []string{
		"--node", name, "--listen", w.at[machine],
		"--lease", lease, "--node-timeout", nodeTimeout, "--squash", "none",
	}
	if w.secret != "" {
		out = append(out, "--secret-file", w.secret)
	}
	if !w.opts.here {
		out = append(out, "--transport", "tcp")
	}
	if w.opts.flags != nil {
		out = append(out, w.opts.flags(name)...)
	}
	if w.etcd != nil {
		return append(out, "--cluster", "etcd://"+w.etcd.Endpoints()[0]+"/lab")
	}
	for i, at := range w.at {
		if i != machine {
			out = append(out, "--peer", nodeName(i)+"="+at)
		}
	}
	return out
}

// meet waits until every node sees all others.
func (w *world) meet() {
	w.t.Helper()
	for _, n := range w.nodes {
		for _, other := range w.nodes {
			if other != n {
				kit.Eventually(w.t, patience, func() error { return n.reaches(other.name) })
			}
		}
	}
}

// reaches returns an error if a node does not see the devices of another one.
func (n *node) reaches(name string) error {
	entries, err := os.ReadDir(n.at(name))
	if err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	if len(entries) == 0 {
		return fmt.Errorf("%s sees no devices of %s", n.name, name)
	}
	return nil
}

// at returns a path on another node, through this one.
func (n *node) at(name string, elem ...string) string {
	return n.Path(append([]string{"nodes", name}, elem...)...)
}

// cluster returns the output of hmcfs nodes.
func (n *node) cluster() adminapi.Cluster {
	n.w.t.Helper()
	text, err := n.Run("nodes", "--json", n.Dir)
	must(n.w.t, err)
	var out adminapi.Cluster
	must(n.w.t, json.Unmarshal([]byte(text), &out))
	return out
}

// names returns the nodes that are listed.
func (n *node) names() ([]string, error) {
	entries, err := os.ReadDir(n.Path("nodes"))
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

// lists waits until a node lists exactly these others.
func (n *node) lists(want ...string) {
	n.w.t.Helper()
	kit.Eventually(n.w.t, patience, func() error {
		got, err := n.names()
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%s lists %q, want %q", n.name, got, want)
		}
		return err
	})
}

// lapsed waits until a node reports that another one's lease has ended.
func (n *node) lapsed(name members.Name) {
	n.w.t.Helper()
	kit.Eventually(n.w.t, patience, func() error {
		for _, other := range n.cluster().Nodes {
			if other.Name == name && !other.Lapsed.IsZero() && !other.Connected && other.Problem != "" {
				return nil
			}
		}
		return fmt.Errorf("%s does not say that the lease of %s has ended", n.name, name)
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// among reports whether an error is one of several.
func among(err error, all ...error) bool {
	return slices.ContainsFunc(all, func(one error) bool { return errors.Is(err, one) })
}
