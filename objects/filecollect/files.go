package filecollect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Request is a collective of files of a mount.
type Request struct {
	// Task has no Size yet: it is the size of the sources.
	Task Task
	// Sources and Targets are the files of each rank, by their inode numbers in the tree; 0
	// means none.
	Sources, Targets []objects.Ino
	// By is the user, whose permissions for the files are checked.
	By objects.Caller
}

// Collect opens the files of a request and runs it. It sets the task's size.
//
// Errors: those of Run; *RankError for a file that can't be used.
func (c *Collector) Collect(ctx context.Context, tree *cluster.Mesh, r *Request) (Outcome, error) {
	o := newOpened(c.o.Store, tree, r.By, r.Sources, r.Targets)
	defer o.close(ctx)
	ranks, err := o.ranks(ctx, &r.Task)
	if err != nil {
		return Outcome{}, err
	}
	return c.Run(ctx, r.Task, ranks, !r.By.IsRoot())
}

// opened holds the files that are open for one request.
type opened struct {
	store *objects.Store
	tree  *cluster.Mesh
	by    objects.Caller
	// reads and writes are the files to be read and written: a file may be the source of one
	// rank and the target of another.
	reads, writes []metadata.Ino
	// ends holds the open files, by their inode numbers in the tree.
	ends map[metadata.Ino]cluster.End
}

func newOpened(store *objects.Store, tree *cluster.Mesh, by objects.Caller, reads, writes []metadata.Ino) *opened {
	return &opened{store: store, tree: tree, by: by, reads: reads, writes: writes, ends: map[metadata.Ino]cluster.End{}}
}

func (o *opened) close(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for _, e := range o.ends {
		if e.Remote != nil {
			_ = e.Remote.Close(ctx) // written data is already in place
			continue
		}
		_ = e.Local.Close(ctx) // the store has logged what fails
	}
}

// open opens a file, once, for all access that is needed.
func (o *opened) open(ctx context.Context, ino metadata.Ino) (cluster.End, error) {
	if e, has := o.ends[ino]; has {
		return e, nil
	}
	var access objects.Permission
	if slices.Contains(o.reads, ino) {
		access |= objects.PermRead
	}
	if slices.Contains(o.writes, ino) {
		access |= objects.PermWrite
	}
	node, there, err := o.tree.Locate(ino)
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

// local opens a file of this node if its mode permits the access.
func (o *opened) local(ctx context.Context, ino metadata.Ino, access objects.Permission) (*objects.File, error) {
	a, err := o.store.Attr(ctx, ino)
	switch {
	case errors.Is(err, metadata.ErrNotExist):
		return nil, fmt.Errorf("it has no memory of its own; name a file in a device's directory: %w", metadata.ErrNotExist)
	case err != nil:
		return nil, err
	case !a.IsRegular():
		return nil, fmt.Errorf("it is not a regular file: %w", objects.ErrInvalid)
	case a.Parent == metadata.PublishIno:
		return nil, fmt.Errorf("it is published; receive it first: %w", objects.ErrBusy)
	case !o.by.May(&a.Inode, access):
		return nil, fmt.Errorf("it has mode %o and belongs to user %d; user %d lacks the required permission: %w",
			a.Mode.Perm(), a.UID, o.by.UID, objects.ErrForbidden)
	}
	return o.store.OpenFile(ctx, ino)
}

// sizeOf returns the present size of a file.
func sizeOf(ctx context.Context, e cluster.End) (uint64, error) {
	if e.Remote != nil {
		return e.Remote.Length(ctx)
	}
	return e.Local.Size(), nil
}

// ranks opens the files, and determines the common size of the sources.
func (o *opened) ranks(ctx context.Context, t *Task) ([]FileRank, error) {
	ranks := make([]FileRank, t.Ranks)
	if err := o.openSources(ctx, t, ranks); err != nil {
		return nil, err
	}
	return ranks, o.openTargets(ctx, t, ranks)
}

// openSources opens the sources, and determines their common size.
func (o *opened) openSources(ctx context.Context, t *Task, ranks []FileRank) (err error) {
	first := -1
	for rank, ino := range o.reads {
		if ino == 0 {
			continue
		}
		var size uint64
		if ranks[rank].Source, err = o.open(ctx, ino); err == nil {
			size, err = sizeOf(ctx, ranks[rank].Source)
		}
		if first < 0 && err == nil {
			first, t.Size = rank, size
		}
		if err == nil && size != t.Size {
			err = fmt.Errorf("it has %d bytes, but rank %d has %d: %w", size, first, t.Size, objects.ErrInvalid)
		}
		if err != nil {
			return ofRank(rank, err)
		}
	}
	return nil
}

// openTargets opens the targets. Each file may be the target of only one rank.
func (o *opened) openTargets(ctx context.Context, t *Task, ranks []FileRank) (err error) {
	for rank, ino := range o.writes {
		if ino == 0 {
			continue
		}
		if other := slices.Index(o.writes, ino); other < rank {
			return ofRank(rank, fmt.Errorf("its target is also the target of rank %d: %w", other, objects.ErrInvalid))
		}
		if ranks[rank].Target, err = o.open(ctx, ino); err == nil {
			err = checkTarget(ctx, t, ranks[rank].Target)
		}
		if err != nil {
			return ofRank(rank, err)
		}
	}
	return nil
}

// checkTarget refuses to broadcast to a file that is neither empty nor of the same size.
func checkTarget(ctx context.Context, t *Task, e cluster.End) error {
	if t.Kind != plan.Broadcast {
		return nil
	}
	size, err := sizeOf(ctx, e)
	if err == nil && size != 0 && size != t.Size {
		err = fmt.Errorf("it has %d bytes, but rank %d has %d: %w", size, t.Root, t.Size, objects.ErrInvalid)
	}
	return err
}
