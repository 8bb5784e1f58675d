package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/filecollect"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/env"
)

// Daemon executes operations on several files.
var _ admin.Collector = (*Daemon)(nil)

// newCollector returns the executor of collectives on files. settings are the options from
// the environment for collectives across several nodes; nil means none.
func (d *Daemon) newCollector(settings *env.Settings) *filecollect.Collector {
	return filecollect.New(filecollect.Options{
		Store: d.store, Engine: d.engine, Timeout: d.opts.Settings.NodeTimeout, Settings: settings, Logger: d.log,
		Order: func(places []filecollect.Place) ([]plan.Rank, string) { return d.ring(placesOf(places)) },
	})
}

// inoOf returns the inode number in the mount of a file, if the caller can reach it.
func (d *Daemon) inoOf(ctx context.Context, by objects.Caller, f *admin.Named) (metadata.Ino, error) {
	switch {
	case f.Shown != nil:
		return d.shownFile(f.Shown)
	case f.Ino != 0:
		return f.Ino, d.mayReach(ctx, by, f.Ino)
	}
	return d.namedFile(ctx, by, f.Path)
}

func taskOf(r adminapi.CollectRequest) (t filecollect.Task, err error) {
	t = filecollect.Task{Root: r.Root, Ranks: len(r.Sources), Strict: r.Strict, Algorithm: plan.Algorithm(r.Algorithm)}
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

// Collect executes a collective whose ranks are files.
func (d *Daemon) Collect(ctx context.Context, by objects.Caller, r adminapi.CollectRequest, sources, targets []*admin.Named) (adminapi.CollectAnswer, error) {
	t, err := taskOf(r)
	if err != nil {
		return adminapi.CollectAnswer{}, err
	}
	q := &filecollect.Request{Task: t, By: by}
	if q.Sources, q.Targets, err = d.numbers(ctx, by, &t, sources, targets); err != nil {
		return adminapi.CollectAnswer{}, err
	}
	done, err := d.collector.Collect(ctx, d.tree, q)
	if err != nil {
		if errors.Is(err, filecollect.ErrTask) {
			err = fmt.Errorf("%w: %w", objects.ErrInvalid, err)
		}
		return adminapi.CollectAnswer{}, err
	}
	t = q.Task
	out := adminapi.CollectAnswer{
		Verb: t.Kind.String(), Ranks: t.Ranks, Nodes: done.Nodes, Dtype: t.Type.String(), Size: devices.Size(t.Size),
		Algorithm: string(done.Algorithm), Because: done.Because, Path: done.Path, Seconds: done.Took.Seconds(),
		Calls: done.Calls, Predicted: done.Predicted.Seconds(), Measured: done.Measured.Seconds(),
		Sent: done.Sent, Received: done.Received, Retries: done.Retries,
	}
	if t.Op != 0 {
		out.Op = t.Op.String()
	}
	out.Algbw, out.Busbw = filecollect.Bandwidths(t, done.Took)
	return out, nil
}

// numbers fills in the files' inode numbers in the mount, 0 for none.
func (d *Daemon) numbers(ctx context.Context, by objects.Caller, t *filecollect.Task, sources, targets []*admin.Named) (from, to []metadata.Ino, err error) {
	from, to = make([]metadata.Ino, len(sources)), make([]metadata.Ino, len(targets))
	for i := range sources {
		for _, one := range []struct {
			f  *admin.Named
			at *metadata.Ino
		}{{sources[i], &from[i]}, {targets[i], &to[i]}} {
			if one.f == nil || one.at == &from[i] && !t.HasSource(i) {
				continue // it is not read
			}
			if *one.at, err = d.inoOf(ctx, by, one.f); err != nil {
				return nil, nil, &filecollect.RankError{Rank: i, Err: err}
			}
		}
	}
	return from, to, nil
}
