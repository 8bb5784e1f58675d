package objects

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// victim is an inode whose last name an operation may remove. Its content is loaded
// before, and its extended attributes are held if it is open, because its records are
// removed with the name.
type victim struct {
	names *names
	// name is to be removed by unlink, and err is the outcome. It stays if it is not that of the inode only, 0 for any, or if
	// may, which is called under the lock of the names, returns an error.
	name string
	only Ino
	may  func(now metadata.Inode) error
	err  error
	ino  Ino // 0 if the last name is not removed
	obj  *object
	// xattrs releases its extended attributes, until they are the orphan's; nil for none.
	xattrs func()
	// kind is the event that is emitted for its key; empty is EventRemoved. A file of
	// publish/ is withdrawn unless kind is EventConsumed.
	kind EventKind
	// parts are the keys of its tensors.
	parts []metadata.PartKey
	// size is the size that it had, if an event needs it.
	size uint64
	// receipts are noted with the removal.
	receipts []string
	// unasked reports that the name is removed without a request of the kernel.
	unasked bool
	// ended is a publication that has ended with result; its publisher is notified when no
	// lock is held.
	ended  *devices.Signal
	result error
}

// ask finds the inode that has a victim's name, and whether the name may be removed.
func (v *victim) ask(ctx context.Context, parent Ino) error {
	now, err := v.look(ctx, parent, v.name)
	switch {
	case err != nil:
		return err
	case v.only != 0 && now.Ino != v.only:
		return metadata.ErrNotExist
	case v.may != nil:
		return v.may(now)
	}
	return nil
}

// unlinked takes the outcome of a removal.
func (v *victim) unlinked(r *metadata.Removal) {
	if v.err = r.Err; v.err != nil {
		return
	}
	v.removed(r.Inode)
	if len(v.receipts) > 0 {
		v.names.receipts.note(v.receipts)
	}
}

// look finds the inode of a name, which may lose its last one. The caller has the lock of the
// names, and calls release without it, also after an error.
func (v *victim) look(ctx context.Context, parent Ino, name string) (metadata.Inode, error) {
	in, err := v.lookup(ctx, parent, name)
	if err == nil && in.IsDir() {
		v.hold(ctx, in.Ino)
	}
	if err == nil && !in.IsDir() && in.Nlink <= 1 {
		err = v.find(ctx, in)
		v.measure(in)
		if in.Parts > 0 && err == nil {
			v.parts, err = v.names.meta.PartKeys(ctx, in.Ino)
		}
	}
	return in, err
}

// lookup finds the inode of a name. Usually that is the one meant, whose record is cached, and has the name.
func (v *victim) lookup(ctx context.Context, parent Ino, name string) (metadata.Inode, error) {
	if v.only != 0 {
		if in, err := v.names.meta.Get(ctx, v.only); err == nil && in.Parent == parent && in.Name == name {
			return in, nil
		}
	}
	return v.names.meta.Lookup(ctx, parent, name)
}

// isFleeting reports whether the inode is memory of a session.
func (v *victim) isFleeting() bool {
	if v.obj == nil {
		return false
	}
	b, ok := v.obj.content().(*content.Bound)
	if !ok {
		return false
	}
	_, ok = b.Source.(*blobSource)
	return ok
}

func (v *victim) find(ctx context.Context, in metadata.Inode) (err error) {
	s := v.names
	v.ino = in.Ino
	nameless := in
	nameless.Nlink = 0
	s.table.leaves(in.Ino, &nameless)
	if !in.IsRegular() {
		return nil
	}
	v.hold(ctx, in.Ino)
	if v.obj = s.table.pinLoaded(in.Ino); v.obj == nil {
		if in.Epoch == 0 && s.tiers.inHostTier(in) {
			return nil
		}
		// Also if it has no content yet: a handle that opens, writes and closes it before
		// the name is removed would leave records that refer to memory, and once the
		// records are removed, nothing would refer to that memory.
		v.obj, err = s.table.pin(ctx, in.Ino, pinUse)
		if errors.Is(err, ErrLost) || err != nil && s.tiers.inHostTier(in) {
			// A host file is removed by its number: one that can't be opened, for lack of
			// descriptors, can be removed all the same.
			return nil
		}
		if err != nil {
			return err
		}
	}
	// Again, since the entry may exist only now: an export either sees here that the name
	// is being removed, or was seen by mayGo.
	s.table.leaves(in.Ino, &nameless)
	return v.obj.mayGo()
}

// hold keeps the attributes of an inode that is open beyond its last name. The caller has the lock of the names.
func (v *victim) hold(ctx context.Context, ino Ino) {
	if v.names.table.isOpen(ino) {
		v.names.meta.HoldXattrs(ino)
		v.xattrs = v.names.attrs.xattrsEnd(ctx, ino)
	}
}

func (v *victim) removed(after metadata.Inode) {
	if after.Nlink == 0 {
		// A process that holds an O_PATH descriptor may still ask for values that only the
		// content has.
		if last, err := v.names.attrs.overlaid(after, v.obj); err == nil {
			after = last.Inode
		}
		// In this order: a concurrent load of the object finds its bytes, or that it is an
		// orphan.
		v.names.table.orphaned(after, v.xattrs, v.unasked)
		v.xattrs = nil
		v.tell(after)
	}
}

// measure records the size of an inode that has a key, or is published.
func (v *victim) measure(in metadata.Inode) {
	if in.Key == "" && in.Parent != metadata.PublishIno {
		return
	}
	if a, err := v.names.attrs.overlaid(in, v.obj); err == nil {
		v.size = a.Size
	}
}

func (v *victim) release(ctx context.Context) {
	if v.ended != nil {
		v.ended.Set(v.result)
	}
	if v.xattrs != nil {
		v.xattrs()
	}
	if v.ino != 0 {
		v.names.table.leaves(v.ino, nil)
	}
	if v.obj != nil {
		v.names.table.unpin(ctx, v.obj, pinUse)
	}
}
