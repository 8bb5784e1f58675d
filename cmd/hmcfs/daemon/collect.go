package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/collect"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// Daemon does what several files are needed for.
var _ admin.Collector = (*Daemon)(nil)

// opened are files that are open for one request.
type opened struct {
	d  *Daemon
	by objects.Caller
	// ends are the files that are open, by their numbers in the mount.
	ends map[metadata.Ino]cluster.End
}

// close ends them.
func (o *opened) close(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for _, e := range o.ends {
		if e.Remote != nil {
			_ = e.Remote.Close(ctx) // what was written is there
			continue
		}
		_ = e.Local.Close(ctx) // the store has logged what fails
	}
}

// inoOf is the number in the mount of a file that the caller can reach.
func (o *opened) inoOf(ctx context.Context, f *admin.Named) (metadata.Ino, error) {
	switch {
	case f.Shown != nil:
		return o.d.shownFile(f.Shown)
	case f.Ino != 0:
		return f.Ino, o.d.mayReach(ctx, o.by, f.Ino)
	}
	return o.d.namedFile(ctx, o.by, f.Path)
}

// open opens a file, once. All that is wanted of it is told the first time.
func (o *opened) open(ctx context.Context, ino metadata.Ino, access objects.Permission) (cluster.End, error) {
	if e, has := o.ends[ino]; has {
		return e, nil
	}
	node, there, err := o.d.tree.Locate(ino)
	if err != nil {
		return cluster.End{}, err
	}
	var e cluster.End
	if node != nil {
		e.Remote, err = node.Open(ctx, o.by.WithGroups(), there, access)
	} else {
		e.Local, err = o.local(ctx, ino, access)
	}
	if err != nil {
		return cluster.End{}, err
	}
	o.ends[ino] = e
	return e, nil
}

// local opens a file of this node, which its mode must allow the caller.
func (o *opened) local(ctx context.Context, ino metadata.Ino, access objects.Permission) (*objects.File, error) {
	a, err := o.d.store.Attr(ctx, ino)
	switch {
	case errors.Is(err, metadata.ErrNotExist):
		return nil, fmt.Errorf("it has no memory of its own; name a file in a device's directory: %w", err)
	case err != nil:
		return nil, err
	case !a.IsRegular():
		return nil, fmt.Errorf("it is no regular file, and only those have memory: %w", objects.ErrInvalid)
	case a.Parent == metadata.PublishIno:
		return nil, fmt.Errorf("it is published; receive it first: %w", objects.ErrBusy)
	case access&objects.PermRead != 0 && !o.by.May(&a.Inode, objects.PermRead), access&objects.PermWrite != 0 && !o.by.May(&a.Inode, objects.PermWrite):
		return nil, fmt.Errorf("it has mode %o and belongs to user %d; user %d may not do that: %w",
			a.Mode.Perm(), a.UID, o.by.UID, objects.ErrForbidden)
	}
	return o.d.store.OpenFile(ctx, ino)
}

// sizeOf is the present size of a file.
func sizeOf(ctx context.Context, e cluster.End) (uint64, error) {
	if e.Remote != nil {
		return e.Remote.Length(ctx)
	}
	return e.Local.Size(), nil
}

// taskOf reads what is asked for.
func taskOf(r adminapi.CollectRequest) (t collect.Task, err error) {
	t = collect.Task{Root: r.Root, Ranks: len(r.Sources), Strict: r.Strict, Algorithm: plan.Algorithm(r.Algorithm)}
	if err = t.Kind.UnmarshalText([]byte(r.Verb)); err == nil {
		t.Type, err = elem.ParseType(r.Dtype)
	}
	if err == nil && r.Op != "" {
		t.Op, err = elem.ParseOp(r.Op)
	}
	if err == nil && len(r.Targets) != len(r.Sources) {
		err = fmt.Errorf("%d sources and %d targets", len(r.Sources), len(r.Targets))
	}
	if err == nil {
		err = t.Validate()
	}
	if err != nil {
		return t, fmt.Errorf("%w: %w", objects.ErrInvalid, err)
	}
	return t, nil
}

// Collect does a collective whose ranks are files.
func (d *Daemon) Collect(ctx context.Context, by objects.Caller, r adminapi.CollectRequest, sources, targets []*admin.Named) (adminapi.CollectAnswer, error) {
	t, err := taskOf(r)
	if err != nil {
		return adminapi.CollectAnswer{}, err
	}
	if d.opts.Settings.ReadOnly() {
		return adminapi.CollectAnswer{}, fmt.Errorf("the mount is read-only: %w", objects.ErrForbidden)
	}
	o := &opened{d: d, by: by, ends: map[metadata.Ino]cluster.End{}}
	defer o.close(ctx)
	ranks, err := o.ranks(ctx, &t, sources, targets)
	if err != nil {
		return adminapi.CollectAnswer{}, err
	}
	begun := time.Now()
	report, nodes, err := d.collect(ctx, t, ranks, by.UID != 0)
	if err != nil {
		if errors.Is(err, collect.ErrTask) {
			err = fmt.Errorf("%w: %w", objects.ErrInvalid, err)
		}
		return adminapi.CollectAnswer{}, err
	}
	took := time.Since(begun)
	out := adminapi.CollectAnswer{
		Verb: t.Kind.String(), Ranks: t.Ranks, Nodes: nodes, Dtype: t.Type.String(), Size: devices.Size(t.Size),
		Algorithm: string(report.Algorithm), Because: report.Because, Path: report.Path, Seconds: took.Seconds(),
		Calls: report.Calls, Predicted: report.Predicted.Seconds(), Measured: report.Measured.Seconds(),
		Sent: report.Sent, Received: report.Received, Retries: report.Retries,
	}
	if t.Op != 0 {
		out.Op = t.Op.String()
	}
	out.Algbw, out.Busbw = collect.Bandwidths(t, took)
	return out, nil
}

// ranks opens the files, and finds the size that all sources have.
func (o *opened) ranks(ctx context.Context, t *collect.Task, sources, targets []*admin.Named) ([]cluster.CollectRank, error) {
	from, to, err := o.numbers(ctx, t, sources, targets)
	if err != nil {
		return nil, err
	}
	// A file may be the source of one rank and the target of another.
	access := func(ino metadata.Ino) (a objects.Permission) {
		if slices.Contains(from, ino) {
			a |= objects.PermRead
		}
		if slices.Contains(to, ino) {
			a |= objects.PermWrite
		}
		return a
	}
	ranks := make([]cluster.CollectRank, t.Ranks)
	if err := o.openSources(ctx, t, ranks, from, access); err != nil {
		return nil, err
	}
	return ranks, o.openTargets(ctx, t, ranks, to, access)
}

// openSources opens what ranks give, and finds the size that all have.
func (o *opened) openSources(ctx context.Context, t *collect.Task, ranks []cluster.CollectRank, from []metadata.Ino, access func(metadata.Ino) objects.Permission) (err error) {
	first := -1
	for rank, ino := range from {
		if ino == 0 {
			continue
		}
		var size uint64
		if ranks[rank].Source, err = o.open(ctx, ino, access(ino)); err == nil {
			size, err = sizeOf(ctx, ranks[rank].Source)
		}
		if first < 0 && err == nil {
			first, t.Size = rank, size
		}
		if err == nil && size != t.Size {
			err = fmt.Errorf("it has %d bytes, and rank %d has %d: %w", size, first, t.Size, objects.ErrInvalid)
		}
		if err != nil {
			return rankFault(rank, err)
		}
	}
	return nil
}

// openTargets opens what ranks get, each file for one of them.
func (o *opened) openTargets(ctx context.Context, t *collect.Task, ranks []cluster.CollectRank, to []metadata.Ino, access func(metadata.Ino) objects.Permission) (err error) {
	for rank, ino := range to {
		if ino == 0 {
			continue
		}
		if other := slices.Index(to, ino); other < rank {
			return rankFault(rank, fmt.Errorf("its target is that of rank %d too: %w", other, objects.ErrInvalid))
		}
		if ranks[rank].Target, err = o.open(ctx, ino, access(ino)); err == nil {
			err = checkTarget(ctx, t, ranks[rank].Target)
		}
		if err != nil {
			return rankFault(rank, err)
		}
	}
	return nil
}

// checkTarget refuses to broadcast over what is not as long, or nothing yet.
func checkTarget(ctx context.Context, t *collect.Task, e cluster.End) error {
	if t.Kind != plan.Broadcast {
		return nil
	}
	size, err := sizeOf(ctx, e)
	if err == nil && size != 0 && size != t.Size {
		err = fmt.Errorf("it has %d bytes, and rank %d has %d: %w", size, t.Root, t.Size, objects.ErrInvalid)
	}
	return err
}

// numbers are the files' in the mount, 0 for none.
func (o *opened) numbers(ctx context.Context, t *collect.Task, sources, targets []*admin.Named) (from, to []metadata.Ino, err error) {
	from, to = make([]metadata.Ino, len(sources)), make([]metadata.Ino, len(targets))
	for i := range sources {
		for _, one := range []struct {
			f  *admin.Named
			at *metadata.Ino
		}{{sources[i], &from[i]}, {targets[i], &to[i]}} {
			if one.f == nil || one.at == &from[i] && !t.HasSource(i) {
				continue // it is not read
			}
			if *one.at, err = o.inoOf(ctx, one.f); err != nil {
				return nil, nil, rankFault(i, err)
			}
		}
	}
	return from, to, nil
}

func rankFault(rank int, err error) error { return &collect.RankError{Rank: rank, Err: err} }

// collect runs a task, on this node alone or on several.
func (d *Daemon) collect(ctx context.Context, t collect.Task, ranks []cluster.CollectRank, killPriv bool) (collect.Report, int, error) {
	places := make([]collect.Place, 0, len(ranks))
	nodes := map[*cluster.Node]bool{}
	for rank, r := range ranks {
		for _, e := range []cluster.End{r.Source, r.Target} {
			if e.Remote != nil {
				nodes[e.Remote.Node()] = true
			} else if e.Local != nil {
				nodes[nil] = true
			}
		}
		places = append(places, collect.Place{Rank: rank, Source: r.Source.Local, Target: r.Target.Local})
	}
	if !nodes[nil] || len(nodes) > 1 {
		report, err := d.others.cluster.Collect(ctx, t, ranks, killPriv)
		return report, len(nodes), err
	}
	done, err := collect.Turn(ctx, d.store, places)
	if err != nil {
		return collect.Report{}, 0, err
	}
	job, err := collect.Prepare(ctx, t, places, done)
	if err != nil {
		return collect.Report{}, 0, err
	}
	if t.Algorithm != "" {
		job.Join(d.ring(placesOf(places)))
	}
	report := collect.Report{}
	err = collect.Contained(func() (err error) {
		report, err = job.RunRanks(ctx, region.NewTable(d.engine))
		return err
	})
	if panicked, ok := errors.AsType[*collect.PanicError](err); ok {
		d.log.Error("a collective has panicked", zap.Stringer("panic", panicked))
	}
	if err != nil {
		job.Discard()
		return collect.Report{}, 0, err
	}
	return report, 1, job.Commit(ctx, killPriv)
}
