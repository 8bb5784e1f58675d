package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/env"
)

// membership is the view of the nodes of the cluster, including this one.
type membership interface {
	members.View
	Update(change func(*members.Record)) error
	Close(ctx context.Context) error
}

// others holds the connections to the other nodes. A nil field was not started, or does not
// exist with a fixed list of nodes.
type others struct {
	parsed  config.Cluster
	service coord.Service
	members membership
	index   *keyindex.Registry
	cluster *cluster.Cluster
	// elsewhere records what other nodes have open; nil without a holder.
	elsewhere *cluster.Elsewhere
}

// join makes the mount a node of a cluster, if the options say so.
func (d *Daemon) join(ctx context.Context, back *undo) error {
	s := d.opts.Settings
	if !s.IsCluster() {
		return nil
	}
	d.others = &others{}
	back.push(func() { d.leaveOthers(context.WithoutCancel(ctx)) })
	var err error
	if d.others.parsed, err = s.Cluster(); err != nil {
		return err
	}
	for _, w := range d.opts.Proofs.Warnings {
		d.warn(w)
	}
	for _, step := range []func(context.Context) error{d.becomeMember, d.openIndex, d.openCluster} {
		if err = step(ctx); err != nil {
			return fmt.Errorf("node %s: %w", s.Node, err)
		}
	}
	return nil
}

// becomeMember announces this node to the others.
func (d *Daemon) becomeMember(ctx context.Context) error {
	o, s, p := d.others, d.opts.Settings, d.opts.Places
	was, err := p.ReadNode()
	if err != nil {
		return err
	}
	self := members.Record{
		Name: o.parsed.Node, Addresses: o.parsed.Advertise, ID: was.ID, Epoch: members.Epoch(was.Epoch),
		Version: d.opts.Version, Started: d.started, Held: d.holder != nil,
	}
	if d.continuesNode(ctx, &was) {
		self.Life = was.Life + 1
	}
	if at, has := d.localSocket(); has {
		self.Addresses = append(slices.Clone(self.Addresses), at.String())
	}
	devs, err := d.store.Devices(ctx)
	if err != nil {
		return err
	}
	for _, dev := range devs {
		self.Devices = append(self.Devices, members.Device{
			Name: string(dev.Info.Name), Model: dev.Info.Model, Total: uint64(dev.Usage.Total),
		})
	}
	if len(o.parsed.Endpoints) == 0 {
		o.members, err = nonNil(members.Static(members.StaticOptions{Self: self, Peers: o.parsed.Peers}))
	} else {
		if o.service, err = d.openService(ctx); err != nil {
			return err
		}
		o.members, err = nonNil(members.Join(ctx, members.Options{
			Service: o.service, Self: self, TTL: s.Lease, Endpoints: o.parsed.Endpoints, Logger: d.opts.Logger,
		}))
	}
	if err != nil {
		return joinFault(err)
	}
	self = o.members.Self()
	d.sameNode = self.Life > 0
	now := place.Node{ID: was.ID, Epoch: uint64(self.Epoch), Life: self.Life, Memory: map[string]uint64{}}
	for name, epoch := range d.store.Epochs() {
		now.Memory[string(name)] = uint64(epoch)
	}
	return p.WriteNode(now)
}

// continuesNode reports whether this daemon continues the incarnation of the one before: it does if
// it continues the mount, and nothing of what was in the memory of devices was lost.
func (d *Daemon) continuesNode(ctx context.Context, was *place.Node) bool {
	if !d.resumes || was.Epoch == 0 || was.Memory == nil {
		return false
	}
	before := map[metadata.DeviceName]metadata.Epoch{}
	for name, epoch := range was.Memory {
		before[metadata.DeviceName(name)] = metadata.Epoch(epoch)
	}
	lost, err := d.store.LostSince(ctx, before)
	if err != nil || len(lost) > 0 {
		d.log.Warn("device memory was lost, so this node comes back as a new one; what other nodes have open of it is stale",
			zap.Any("devices", lost), zap.Error(err))
		return false
	}
	return true
}

// nonNil turns a typed nil pointer with an error into a nil interface.
func nonNil[M membership](m M, err error) (membership, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

// joinFault adds the remedy to an error of joining the cluster.
func joinFault(err error) error {
	switch {
	case errors.Is(err, members.ErrTaken):
		return fmt.Errorf("%w; give another --node, or wait until that node's lease has ended", err)
	case errors.Is(err, coord.ErrUnavailable):
		return fmt.Errorf("etcd is needed to join: %w", err)
	case errors.Is(err, coord.ErrDenied):
		return fmt.Errorf("%w; see --etcd-user, --etcd-cert and --etcd-ca", err)
	}
	return err
}

// localSocket returns the address at which nodes of this machine connect, with which memory
// may be shared; false if the options forbid that.
func (d *Daemon) localSocket() (control.Address, bool) {
	may := d.others.parsed.Transports
	if len(may) > 0 && !slices.Contains(may, comm.SHM) {
		return control.Address{}, false
	}
	path := d.opts.Places.NodeSocket(d.others.parsed.Node.Rank())
	return control.Address{Network: control.Unix, Addr: path}, place.IsSocketPath(path)
}

// openCluster connects the store to those of the other nodes.
func (d *Daemon) openCluster(ctx context.Context) error {
	o, s := d.others, d.opts.Settings
	listen := o.parsed.Listen
	if at, has := d.localSocket(); has {
		listen = append(slices.Clone(listen), at)
	}
	var index keyindex.Index
	if o.index != nil {
		index = o.index
	}
	if text := closedTo(d.remoteOwner(), o.parsed.Squash); text != "" {
		d.warn(text)
	}
	if s.Plain {
		d.warn("--plain: traffic between nodes is neither encrypted nor authenticated after the handshake; use it only in networks that nobody else can reach")
	}
	knobs, err := env.Parse(os.Getenv)
	if err != nil {
		return err
	}
	for _, w := range knobs.Warnings() {
		d.warn(w)
	}
	d.collector = d.newCollector(knobs)
	if d.holder != nil {
		// Before other nodes, or programs, can remove what is open.
		if o.elsewhere, err = cluster.KeepElsewhere(ctx, d.holder, d.resumes && d.sameNode, d.store, d.log); err != nil {
			return err
		}
	}
	o.cluster, err = cluster.Join(ctx, cluster.Options{
		Name: o.parsed.Name, View: o.members, Index: index, Store: d.store, Engine: d.engine, Devices: d.devs,
		Listen: listen, Secret: d.opts.Proofs.Secret, Plain: s.Plain, TLS: d.opts.Proofs.TLS, Transports: o.parsed.Transports,
		Squash: o.parsed.Squash, Owner: d.remoteOwner(), ReadOnly: s.ReadOnly(), Timeout: s.NodeTimeout,
		DialTimeout: min(s.NodeTimeout, dialLimit), Extensions: []cluster.Extension{d.collector}, Elsewhere: o.elsewhere, Logger: d.opts.Logger,
	})
	if err != nil {
		return err
	}
	d.tree = cluster.NewMesh(d.store, o.cluster)
	if d.holder == nil {
		return nil
	}
	return d.tree.Keep(d.holder, d.resumes)
}

// dialLimit bounds the time to connect to a node.
const dialLimit = 3 * time.Second

// remoteOwner returns the only user of other nodes that has access, because it is the only
// one with access here; nil means everybody.
func (d *Daemon) remoteOwner() *uint32 {
	if d.opts.Settings.AllowOther {
		return nil
	}
	uid := uint32(d.opts.UID)
	return &uid
}

// closedTo explains why no user of another node has access, and how to give them access;
// empty if some have.
func closedTo(owner *uint32, s cluster.Squash) string {
	if owner == nil {
		return ""
	}
	others := "no user of another node has access, since only uid %d may use this mount and %s"
	switch {
	case s.Mode == cluster.SquashRoot && *owner == 0 && s.UID != 0:
		return fmt.Sprintf(others+": add --squash none to give root of the other nodes access, or --allow-other for their other users", 0,
			"root of other nodes is mapped to another user here (--squash root)")
	case s.Mode == cluster.SquashAll && *owner != s.UID:
		return fmt.Sprintf(others+": add --allow-other, or --squash all=%d:GID", *owner, fmt.Sprintf("all users of other nodes are mapped to uid %d here (--squash all)", s.UID), *owner)
	}
	return ""
}

// leaveLimit bounds the time to leave the cluster; nodes that cannot be notified by then do
// not hold up the unmount.
const leaveLimit = 5 * time.Second

// leaveOthers undoes join. Its failures are not failures of the unmount.
func (d *Daemon) leaveOthers(ctx context.Context) {
	if d.others == nil {
		return
	}
	if err := d.leave(ctx, d.others); err != nil {
		d.log.Warn("could not leave the cluster cleanly", zap.Error(err))
	}
}

func (d *Daemon) leave(ctx context.Context, o *others) error {
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	var errs []error
	if o.cluster != nil {
		errs = append(errs, o.cluster.Close(ctx), d.tree.Close())
	}
	errs = append(errs, o.elsewhere.Close(ctx))
	if o.index != nil {
		errs = append(errs, o.index.Close())
	}
	if o.members != nil {
		// Nodes that cannot be notified find out when the lease ends.
		if err := o.members.Close(ctx); err != nil && !errors.Is(err, coord.ErrUnavailable) {
			errs = append(errs, err)
		}
	}
	if o.service != nil {
		errs = append(errs, o.service.Close())
	}
	d.opts.Places.CleanNodeSocket(o.parsed.Node.Rank())
	return errors.Join(errs...)
}

// otherNodes returns the cluster of the mount; nil if there is none.
func (d *Daemon) otherNodes() *cluster.Cluster {
	if d.others == nil {
		return nil
	}
	return d.others.cluster
}

// Forget removes a node that will not return from the cluster.
func (d *Daemon) Forget(ctx context.Context, node members.Name) error {
	if d.others == nil {
		return fmt.Errorf("this mount is not part of a cluster: %w", admin.ErrNotFound)
	}
	for _, n := range d.others.cluster.Nodes() {
		if n.Name == node && n.Connected {
			return fmt.Errorf("node %s is connected; unmount it on its own machine: %w", node, admin.ErrBusy)
		}
	}
	err := d.others.members.Forget(ctx, node)
	switch {
	case errors.Is(err, members.ErrPresent):
		return fmt.Errorf("%w: %w", err, admin.ErrBusy)
	case errors.Is(err, coord.ErrNotFound):
		return fmt.Errorf("node %s is unknown: %w", node, admin.ErrNotFound)
	case err == nil:
		d.log.Warn("node forgotten", zap.String("node", string(node)))
	}
	return err
}

// Cluster returns the known state of the other nodes.
func (d *Daemon) Cluster() (adminapi.Cluster, error) {
	o := d.others
	if o == nil {
		return adminapi.Cluster{}, fmt.Errorf("this mount is not part of a cluster: %w", admin.ErrNotFound)
	}
	out := adminapi.Cluster{
		Name: o.parsed.Name, Self: o.members.Self(), Listening: o.cluster.Listening(), Squash: d.opts.Settings.Squash,
		State: o.members.State(), Nodes: o.cluster.Nodes(), Traffic: o.cluster.Stats(),
	}
	out.Conflicts, out.LastConflicts = o.cluster.KeyConflicts()
	return out, nil
}
