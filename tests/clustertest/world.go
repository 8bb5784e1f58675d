package clustertest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/control"
)

// Secret returns the secret that the nodes share.
func Secret() []byte { return []byte("a secret of the cluster's tests") }

// Root returns the user root, without groups.
func Root() objects.Caller { return objects.Caller{} }

// Options configures a World. The zero value creates two nodes, a and b, that use TCP and do
// not squash root.
type Options struct {
	Names []members.Name
	// Unix makes the nodes listen on Unix sockets, so that they share memory.
	Unix bool
	// Size is the memory size of each device. Default 64 MiB.
	Size devices.Size
	// Change, if not nil, changes the options of a node.
	Change func(name members.Name, o *cluster.Options)
	// Store, if not nil, changes the options of a node's store.
	Store func(name members.Name, o *objects.Options)
	// Sim holds the parameters of the simulated devices, except their size.
	Sim sim.Params
}

// World is a set of nodes that know each other.
type World struct {
	t     testing.TB
	o     Options
	nodes map[members.Name]*Node
	// links carry the connections, indexed by the connecting node and the one that it connects
	// to.
	links map[[2]members.Name]*Link
}

// Node is one node of a World.
type Node struct {
	Name    members.Name
	Cluster *cluster.Cluster
	Store   *objects.Store
	Meta    *metadata.Store
	Engine  *transport.Engine
	Devices []devices.Device
	View    *View

	w     *World
	at    control.Address
	epoch members.Epoch
	dir   string
}

// New creates a World, which ends with the test.
func New(t testing.TB, o Options) *World {
	t.Helper()
	if len(o.Names) == 0 {
		o.Names = []members.Name{"a", "b"}
	}
	if o.Size == 0 {
		o.Size = 64 * devices.MiB
	}
	w := &World{t: t, o: o, nodes: map[members.Name]*Node{}, links: map[[2]members.Name]*Link{}}
	for _, name := range o.Names {
		n := &Node{Name: name, w: w, dir: t.TempDir()}
		w.nodes[name] = n
		n.Open()
		t.Cleanup(n.Close)
	}
	for _, n := range w.nodes {
		n.Join()
	}
	t.Cleanup(func() {
		for _, n := range w.nodes {
			n.Leave()
		}
	})
	return w
}

// Node returns a node by name.
func (w *World) Node(name members.Name) *Node {
	w.t.Helper()
	n := w.nodes[name]
	if n == nil {
		w.t.Fatalf("no node %q in this world", name)
	}
	return n
}

// Peer returns a node as another one sees it.
func (w *World) Peer(of, name members.Name) *cluster.Node {
	w.t.Helper()
	n, err := w.Node(of).Cluster.Node(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// Open opens the store, as New has already done once.
func (n *Node) Open() {
	t := n.w.t
	t.Helper()
	reg := devices.NewRegistry(host.NewDriver(host.Options{Dir: filepath.Join(n.dir, "host"), NoMount: true}))
	tier, err := reg.Open(t.Context(), "host,size="+n.w.o.Size.String())
	if err != nil {
		t.Fatal(err)
	}
	p := n.w.o.Sim
	p.Size = n.w.o.Size
	n.Devices = []devices.Device{tier, sim.New(0, p)}
	if n.Engine, err = transport.New(transport.Options{}); err != nil {
		t.Fatal(err)
	}
	if n.Meta, err = metadata.Open(t.Context(), memkv.New(), metadata.Options{}); err != nil {
		t.Fatal(err)
	}
	o := objects.Options{
		Meta: n.Meta, Engine: n.Engine, Devices: n.Devices, DirMode: 0o777,
		Arena: arena.Options{SlabSize: devices.MiB, Retain: 4 * devices.MiB},
	}
	if n.w.o.Store != nil {
		n.w.o.Store(n.Name, &o)
	}
	if n.Store, err = objects.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// Close closes the store and its devices.
func (n *Node) Close() {
	t := n.w.t
	t.Helper()
	if err := n.Store.Close(context.Background(), objects.CloseOptions{}); err != nil {
		t.Error(err)
	}
	if err := n.Engine.Close(); err != nil {
		t.Error(err)
	}
	for _, d := range n.Devices {
		if files, ok := d.(*host.Device); ok {
			if err := files.Destroy(); err != nil {
				t.Error(err)
			}
			continue
		}
		if u, err := d.Usage(); err != nil || u.Used != 0 {
			t.Errorf("%s of node %s: %v in use after the store closed, %v", d.Info().Name, n.Name, u.Used, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := n.Meta.Close(); err != nil {
		t.Error(err)
	}
}

// Join joins the cluster, with a later epoch each time. New has already joined once.
func (n *Node) Join() {
	t := n.w.t
	t.Helper()
	n.epoch++
	var peers []members.Record
	for name := range n.w.nodes {
		if name != n.Name {
			peers = append(peers, members.Record{Name: name, Addresses: []string{"127.0.0.1:1"}})
		}
	}
	static, err := members.Static(members.StaticOptions{
		Self:  members.Record{Name: n.Name, Addresses: []string{"127.0.0.1:1"}, Epoch: n.epoch, ID: string(n.Name)},
		Peers: peers,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.epoch = static.Self().Epoch
	n.View = &View{StaticView: static, addresses: map[members.Name][]string{}, hidden: map[members.Name]bool{}}
	for name, other := range n.w.nodes {
		if other.at.Addr != "" {
			n.View.Set(name, n.w.address(n.Name, other))
		}
	}
	o := cluster.Options{
		Name: "test", View: n.View, Store: n.Store, Engine: n.Engine, Devices: n.Devices,
		Secret: Secret(), Listen: []control.Address{n.where()}, Squash: cluster.Squash{Mode: cluster.SquashNone},
		Timeout: 5 * time.Second,
	}
	if n.w.o.Change != nil {
		n.w.o.Change(n.Name, &o)
	}
	if n.Cluster, err = cluster.Join(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	at := n.Cluster.Listening()[0]
	if n.at, err = control.ParseAddress(at); err != nil {
		t.Fatal(err)
	}
	for _, other := range n.w.nodes {
		if other.View != nil {
			other.View.Set(n.Name, n.w.address(other.Name, n))
		}
	}
}

// address returns the address by which a node reaches another one.
func (w *World) address(from members.Name, to *Node) string {
	if l := w.links[[2]members.Name{from, to.Name}]; l != nil {
		return l.listen.Addr().String()
	}
	return to.at.String()
}

// where returns the address to listen at, which does not change after the first call.
func (n *Node) where() control.Address {
	t := n.w.t
	t.Helper()
	switch {
	case n.at.Addr != "":
		return n.at
	case n.w.o.Unix:
		dir, err := os.MkdirTemp("", "hc") // t.TempDir may be too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		return control.Address{Network: control.Unix, Addr: filepath.Join(dir, "s")}
	}
	return control.Address{Network: control.TCP, Addr: "127.0.0.1:0"}
}

// Leave leaves the cluster; calling it twice is harmless.
func (n *Node) Leave() {
	n.w.t.Helper()
	if err := n.Cluster.Close(context.Background()); err != nil {
		n.w.t.Error(err)
	}
}

// Dir returns the directory of one of the node's devices: "host" or "sim0".
func (n *Node) Dir(device string) objects.Ino {
	t := n.w.t
	t.Helper()
	a, err := n.Store.Lookup(t.Context(), metadata.RootIno, device)
	if err != nil {
		t.Fatal(err)
	}
	return a.Ino
}

// File creates a file with content, and closes it.
func (n *Node) File(device, name string, content []byte) objects.Ino {
	t := n.w.t
	t.Helper()
	a, err := n.Store.Create(t.Context(), n.Dir(device), name, metadata.Node{Mode: metadata.TypeRegular | 0o666})
	if err != nil {
		t.Fatal(err)
	}
	f, err := n.Store.OpenFile(t.Context(), a.Ino)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := f.WriteAt(t.Context(), content, objects.Write{}); err != nil || k != len(content) {
		t.Fatalf("write %d bytes: %d, %v", len(content), k, err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a.Ino
}

// Content reads a file of the node, on the node itself.
func (n *Node) Content(ino objects.Ino) []byte {
	t := n.w.t
	t.Helper()
	f, err := n.Store.OpenFile(t.Context(), ino)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, f.Size())
	if k, err := f.ReadAt(t.Context(), p, 0); err != nil || k != len(p) {
		t.Fatalf("read %d bytes: %d, %v", len(p), k, err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}
