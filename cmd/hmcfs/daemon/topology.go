package daemon

import (
	"context"
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/objects/filecollect"
	"github.com/hmcfs/hmcfs/transport/affinity"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/topology"
)

// joined describes how the devices are connected. It does not change once the mount is
// ready.
type joined struct {
	// file is the topology read from the file of the option; nil means to discover it.
	file  *topology.Graph
	infos []devices.Info
	peers []topology.Pair
}

// readTopology determines how the devices are connected, and to which NUMA nodes threads
// belong.
func (d *Daemon) readTopology(ctx context.Context, _ *undo) error {
	s := d.opts.Settings
	if s.Topology != "" {
		g, err := ReadTopology(s.Topology)
		if err != nil {
			return fmt.Errorf("topology: %w", err)
		}
		d.joined.file = g
	}
	for _, dev := range d.raw {
		d.joined.infos = append(d.joined.infos, dev.Info())
		if d.joined.file != nil {
			if _, err := d.joined.file.Device(topology.ID(dev.Info().Name)); err != nil {
				d.warn(fmt.Sprintf("topology: %s does not describe how %s is connected", s.Topology, dev.Info().Name))
			}
		}
	}
	var problems []error
	d.joined.peers, problems = Pairs(ctx, d.families, d.joined.infos)
	for _, err := range problems {
		d.log.Warn("can't determine which cards can reach each other", zap.Error(err))
	}
	if s.NUMA == "off" {
		return nil
	}
	m, err := topology.ReadMachine(topology.SysRoot)
	if err != nil {
		d.log.Warn("threads are not bound to NUMA nodes", zap.Error(err))
		return nil
	}
	d.pinner = affinity.NewPinner(m)
	return nil
}

// ReadTopology reads a file that describes how devices are connected.
func ReadTopology(path string) (*topology.Graph, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the file was only read
	text, err := io.ReadAll(io.LimitReader(f, topology.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	g, err := topology.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

// Pairs asks the families which of the devices can reach each other. A family that fails is
// reported in problems.
func Pairs(ctx context.Context, reg *devices.Registry, infos []devices.Info) (pairs []topology.Pair, problems []error) {
	names := map[devices.Family]map[devices.Ordinal]devices.Name{}
	for _, i := range infos {
		if names[i.Family] == nil {
			names[i.Family] = map[devices.Ordinal]devices.Name{}
		}
		names[i.Family][i.Ordinal] = i.Name
	}
	for _, driver := range reg.Drivers() {
		known := names[driver.Family()]
		if len(known) < 2 {
			continue
		}
		all, err := devices.Peerings(ctx, driver)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", driver.Family(), err))
		}
		for _, p := range all {
			a, hasA := known[p.A]
			b, hasB := known[p.B]
			if hasA && hasB {
				pairs = append(pairs, topology.Pair{A: a, B: b, Rank: p.Rank})
			}
		}
	}
	return pairs, problems
}

// Topology returns how the devices of this node are connected with each other and, as far
// as that is known here, with those of other nodes, which are named NODE/DEVICE.
func (d *Daemon) Topology() (*topology.Graph, error) {
	if d.joined.file != nil {
		return d.joined.file, nil
	}
	o := topology.Options{Devices: d.joined.infos, Peers: d.joined.peers}
	if n := d.otherNodes(); n != nil {
		o.Server = d.opts.Settings.Node
		for _, other := range n.Nodes() {
			r := topology.Remote{Name: string(other.Name), Shared: other.Transport == string(comm.SHM)}
			for _, dev := range other.Devices {
				r.Devices = append(r.Devices, dev.Name)
			}
			o.Remotes = append(o.Remotes, r)
		}
	}
	return topology.Discover(o)
}

// placesOf returns the devices of the ranks whose files are on this node.
func placesOf(places []filecollect.Place) []topology.ID {
	at := make([]topology.ID, len(places))
	for i, p := range places {
		f := p.Source
		if f == nil {
			f = p.Target
		}
		at[i] = topology.ID(host.Family) // its files have no device of their own
		if f != nil && f.Device() != nil {
			at[i] = topology.ID(f.Device().Info().Name)
		}
	}
	return at
}

// ring returns the order in which a ring of ranks uses the fast links between their
// devices, and the hash of the topology; a nil order is the order of the ranks, if it is
// not known how their devices are connected.
func (d *Daemon) ring(at []topology.ID) (order []plan.Rank, hash string) {
	g, err := d.Topology()
	if err != nil {
		d.log.Debug("no topology", zap.Error(err))
		return nil, ""
	}
	found, err := g.Ring(at, ringMessage)
	if err != nil {
		d.log.Debug("no ring order for the ranks, which keep their own", zap.Error(err))
		return nil, g.Hash()
	}
	for _, rank := range found {
		order = append(order, plan.Rank(rank))
	}
	return order, g.Hash()
}

// ringMessage is the message size, in bytes, for which rings are laid out: about what each
// of a few ranks sends of a buffer of some MiB.
const ringMessage = 1 << 20

// topologyJSON returns the content of .hmcfs/topology.json.
func (d *Daemon) topologyJSON() ([]byte, error) {
	g, err := d.Topology()
	if err != nil {
		return nil, err
	}
	return g.Encode()
}
