package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// nameStripes is the number of locks that the directories share. A power of two.
const nameStripes = 64

// names serializes the operations that may remove a name from a directory, so that the
// inode that such an operation finds under the name is the one that it removes. No
// device copy runs under these locks.
type names struct {
	meta     *metadata.Store
	tiers    tiers
	table    *table
	attrs    *attributes
	events   *events
	receipts *receipts
	stripes  [nameStripes]sync.Mutex
}

func stripe(dir Ino) int { return int(uint64(dir) % nameStripes) }

// lock locks the directories, in order, and returns the function that unlocks them.
//
// +checklocksignore: the locks are held when it returns.
func (n *names) lock(a, b Ino) (unlock func()) {
	i, j := stripe(a), stripe(b)
	if i > j {
		i, j = j, i
	}
	n.stripes[i].Lock()
	if i == j {
		return n.stripes[i].Unlock
	}
	n.stripes[j].Lock()
	return func() {
		n.stripes[j].Unlock()
		n.stripes[i].Unlock()
	}
}

// Lookup finds the inode of a name.
func (s *Store) Lookup(ctx context.Context, parent Ino, name string) (Attr, error) {
	for {
		in, err := s.meta.Lookup(ctx, parent, name)
		if err == nil {
			if _, none := s.tiers.named(in.Device); none != nil {
				err = metadata.ErrNotExist
			}
		}
		if err != nil {
			return Attr{}, fmt.Errorf("look up %q: %w", name, err)
		}
		a, err := s.attrs.of(ctx, in)
		if !errors.Is(err, metadata.ErrNotExist) {
			return a, err
		}
		// It was replaced or removed since it was found; look it up again.
	}
}

const (
	// UnfinishedPrefix is the prefix of the names of files that a program is filling and
	// will then rename.
	UnfinishedPrefix = ".hmcfs-receiving-"
	// UnfinishedTTL is the time to live that such a file is created with, so that it does
	// not stay if the program dies before it sets one.
	UnfinishedTTL = 30 * time.Second
)

// Create makes a file, directory, symlink or special file.
//
// Errors: metadata.ErrPermission for names that only hmcfs may make; those of
// metadata.Create.
func (s *Store) Create(ctx context.Context, parent Ino, name string, n metadata.Node) (Attr, error) {
	if err := s.access.mayName(ctx, parent, name); err != nil {
		return Attr{}, fmt.Errorf("create %q: %w", name, err)
	}
	if strings.HasPrefix(name, UnfinishedPrefix) {
		n.Expires = metadata.TimespecOf(s.meta.Now().Time().Add(UnfinishedTTL))
	}
	a, err := s.create(ctx, parent, name, n)
	if err != nil {
		return Attr{}, fmt.Errorf("create %q: %w", name, err)
	}
	s.keyed.expiry.note(a.Expires)
	return a, nil
}

// create makes the record and, on the host tier, before it the file that holds the
// object's content.
func (s *Store) create(ctx context.Context, parent Ino, name string, n metadata.Node) (Attr, error) {
	t := s.homeOf(ctx, parent, n)
	if t == nil {
		in, err := s.meta.Create(ctx, parent, name, n)
		// There is no content yet that could have newer values than the record.
		return Attr{Inode: in, State: StateLive}, err
	}
	inos, err := s.meta.NewInos(ctx, 1)
	if err != nil {
		return Attr{}, err
	}
	n.Ino = inos[0]
	h, err := content.CreateHostFile(t, s.engine, uint64(n.Ino))
	if err != nil {
		return Attr{}, err
	}
	in, err := s.meta.Create(ctx, parent, name, n)
	if err != nil {
		// After a failed write it is uncertain whether there is a record.
		if _, missing := s.meta.Get(context.WithoutCancel(ctx), n.Ino); errors.Is(missing, metadata.ErrNotExist) {
			return Attr{}, errors.Join(err, h.Discard())
		}
		return Attr{}, errors.Join(err, h.Backing().Close())
	}
	a := Attr{Inode: in, State: StateLive}
	st, err := h.Stat()
	if err == nil {
		overlayStat(&a.Inode, st)
	}
	return a, errors.Join(err, h.Backing().Close())
}

// homeOf returns the host tier on which a new inode needs a file; nil for none.
func (s *Store) homeOf(ctx context.Context, parent Ino, n metadata.Node) *content.Tier {
	if typ := n.Mode.Type(); typ != 0 && typ != metadata.TypeRegular {
		return nil
	}
	dir, err := s.meta.Get(ctx, parent)
	if err != nil {
		return nil // making the record reports the reason
	}
	t, err := s.tiers.named(dir.Device)
	if err != nil || t.Files == nil {
		return nil
	}
	return t
}

// Link adds a name to an inode.
func (s *Store) Link(ctx context.Context, ino, parent Ino, name string) (Attr, error) {
	// The steps that may fail come first: a link can't be undone.
	err := s.access.mayName(ctx, parent, name)
	var a Attr
	if err == nil {
		a, err = s.attrs.get(ctx, ino)
	}
	if err != nil {
		return Attr{}, fmt.Errorf("link %q: %w", name, err)
	}
	in, err := s.meta.Link(ctx, ino, parent, name)
	if err != nil {
		return Attr{}, fmt.Errorf("link %q: %w", name, err)
	}
	a.Nlink, a.Parent, a.Name = in.Nlink, in.Parent, in.Name
	if in.Ctime.After(a.Ctime) {
		a.Ctime = in.Ctime
	}
	return a, nil
}

// Unlink removes a name. Content is freed when it becomes unreachable, see Reference; a
// caller that removes a name without a request of the kernel must also call Drop.
func (s *Store) Unlink(ctx context.Context, parent Ino, name string) error {
	return s.UnlinkAs(ctx, Caller{}, parent, name)
}

// UnlinkAs is Unlink for a user that may write the directory: whether it may remove this name
// is checked while the name can't be given to another file.
//
// Errors: also ErrForbidden for a file of another user in a sticky directory.
func (s *Store) UnlinkAs(ctx context.Context, who Caller, parent Ino, name string) error {
	one := []victim{{names: s.names, name: name, may: func(metadata.Inode) error {
		return s.names.mayTake(ctx, who, parent, name)
	}}}
	s.names.unlink(ctx, parent, one)
	return one[0].err
}

// mayTake checks whether a user that may write a directory may remove one of its names. The
// caller has the lock of the names.
//
// Errors: ErrForbidden in a sticky directory.
func (n *names) mayTake(ctx context.Context, who Caller, parent Ino, name string) error {
	if who.IsRoot() {
		return nil
	}
	dir, err := n.meta.Get(ctx, parent)
	if err != nil {
		return err
	}
	in, err := n.meta.Lookup(ctx, parent, name)
	if err != nil || who.MayUnlink(&dir, &in) {
		return err
	}
	return fmt.Errorf("user %d may not remove a name of inode %d, which belongs to user %d, from a sticky directory: %w",
		who.UID, in.Ino, in.UID, ErrForbidden)
}

// unlink removes names of one directory, of different inodes, in few transactions, and sets the error of each
// victim. It may return before that is written if all are of fleeting memory.
func (n *names) unlink(ctx context.Context, parent Ino, victims []victim) {
	unlock := n.lock(parent, parent)
	removals := make([]metadata.Removal, 0, len(victims))
	soon := true
	for i := range victims {
		v := &victims[i]
		if v.err = v.ask(ctx, parent); v.err == nil {
			removals = append(removals, metadata.Removal{Name: v.name, Receipts: v.receipts})
			soon = soon && v.isFleeting()
		}
	}
	n.meta.UnlinkAll(ctx, parent, removals, soon)
	for i := range victims {
		if v := &victims[i]; v.err == nil {
			v.unlinked(&removals[0])
			removals = removals[1:]
		}
	}
	unlock()
	for i := range victims {
		v := &victims[i]
		v.release(ctx)
		if v.err != nil {
			v.err = fmt.Errorf("remove %q: %w", v.name, v.err)
		}
	}
}

// Rmdir removes an empty directory.
func (s *Store) Rmdir(ctx context.Context, parent Ino, name string) error {
	return s.RmdirAs(ctx, Caller{}, parent, name)
}

// RmdirAs is to Rmdir what UnlinkAs is to Unlink.
func (s *Store) RmdirAs(ctx context.Context, who Caller, parent Ino, name string) error {
	unlock := s.names.lock(parent, parent)
	v := &victim{names: s.names}
	err := s.names.mayTake(ctx, who, parent, name)
	if err == nil {
		if in, missing := s.meta.Lookup(ctx, parent, name); missing == nil && in.IsDir() {
			v.hold(ctx, in.Ino)
		}
		var after metadata.Inode
		if after, err = s.meta.Rmdir(ctx, parent, name); err == nil {
			v.removed(after)
		}
	}
	unlock()
	v.release(ctx)
	if err != nil {
		return fmt.Errorf("remove directory %q: %w", name, err)
	}
	return nil
}

// renaming is a rename, and the user it is for.
type renaming struct {
	metadata.Rename
	who Caller
}

// replace runs a rename that may remove the last name of the inode at its new name. run is
// called again if a file gets the new name, which was free, in the meantime.
func (n *names) replace(ctx context.Context, r renaming, run func(metadata.Rename) (metadata.RenameResult, error)) error {
	unlock := n.lock(r.From, r.To)
	v := &victim{names: n}
	result, again, err := n.tryReplace(ctx, v, r, run)
	for again {
		result, again, err = n.tryReplace(ctx, v, r, run)
	}
	if err == nil && result.Replaced != nil {
		v.removed(*result.Replaced)
	}
	unlock()
	v.release(ctx)
	return err
}

// tryReplace looks at the inode at the new name and runs the rename. again is true if there was
// none and now is one: creating a name takes no lock of the names.
func (n *names) tryReplace(
	ctx context.Context, v *victim, r renaming, run func(metadata.Rename) (metadata.RenameResult, error),
) (result metadata.RenameResult, again bool, err error) {
	free := false
	if r.Flags == 0 {
		_, err = v.look(ctx, r.To, r.NewName)
		if free = errors.Is(err, metadata.ErrNotExist); free {
			err = nil
		}
	}
	if err == nil {
		err = n.mayRename(ctx, r, free)
	}
	if err != nil {
		return result, false, err
	}
	exact := r.Rename
	if free {
		exact.Flags = metadata.NoReplace
	}
	result, err = run(exact)
	return result, free && errors.Is(err, metadata.ErrExist), err
}

// mayRename is mayTake for both names of a rename.
func (n *names) mayRename(ctx context.Context, r renaming, free bool) error {
	err := n.mayTake(ctx, r.who, r.From, r.Name)
	if err != nil || free || r.Flags&metadata.NoReplace != 0 {
		return err
	}
	return n.mayTake(ctx, r.who, r.To, r.NewName)
}

// ReadDir lists the entries of a directory after a cookie. Entries on a device that is
// not part of this mount are left out.
func (s *Store) ReadDir(ctx context.Context, dir Ino, after metadata.Cookie, limit int) ([]metadata.Entry, error) {
	for {
		entries, err := s.meta.ReadDir(ctx, dir, after, limit)
		if err != nil {
			return nil, fmt.Errorf("list directory %d: %w", dir, err)
		}
		if dir != metadata.RootIno && dir != metadata.PublishIno || len(entries) == 0 {
			return entries, nil
		}
		after = entries[len(entries)-1].Cookie
		present := slices.DeleteFunc(entries, func(e metadata.Entry) bool { return !s.isPresent(ctx, dir, e) })
		if len(present) > 0 {
			return present, nil
		}
	}
}

// isPresent reports whether the device of an entry of the root, or of publish/, is part
// of this mount.
func (s *Store) isPresent(ctx context.Context, dir Ino, e metadata.Entry) bool {
	device := metadata.DeviceName(e.Name)
	if dir == metadata.PublishIno {
		in, err := s.meta.Get(ctx, e.Ino)
		if err != nil {
			return false // it was removed meanwhile
		}
		device = in.Device
	}
	_, err := s.tiers.named(device)
	return err == nil
}
