package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
)

// maxDepth bounds the number of directories between a file and the root: a path has at
// most 4096 bytes. A walk upwards while directories are being moved may exceed it.
const maxDepth = 2048

// access checks permissions against the records: for keys, and for names that the store
// makes itself. It has no state of its own.
type access struct {
	meta  *metadata.Store
	tiers tiers
}

// A caller that used a path has been checked at its directories, and one that passes a
// descriptor was let in when the file was opened. A key or an inode number proves
// neither, so the functions below check the path.

// maySearchAbove implements MayReach for a record.
func (ac *access) maySearchAbove(ctx context.Context, who Caller, in metadata.Inode) error {
	for depth := 0; who.UID != 0 && in.Ino != metadata.RootIno; depth++ {
		if depth == maxDepth {
			return fmt.Errorf("inode %d: one of its parent directories is being moved: %w", in.Ino, ErrBusy)
		}
		dir, err := ac.meta.Get(ctx, in.Parent)
		if err != nil {
			return fmt.Errorf("parent directory of inode %d: %w", in.Ino, err)
		}
		if !who.May(&dir, PermExec) {
			return Unsearchable(who, &dir)
		}
		in = dir
	}
	return nil
}

// Unsearchable returns the error for a directory that the caller may not search.
func Unsearchable(who Caller, dir *metadata.Inode) error {
	return fmt.Errorf("directory %q has mode %o and belongs to user %d; user %d has no search permission for it: %w",
		dir.Name, dir.Mode.Perm(), dir.UID, who.UID, ErrForbidden)
}

// mayUse checks whether a user has the wanted rights to a file found by its key.
//
// Errors: ErrForbidden.
func (ac *access) mayUse(ctx context.Context, who Caller, in *metadata.Inode, want Permission) error {
	if !who.May(in, want) {
		return ErrForbidden
	}
	if who.IsRoot() {
		return nil
	}
	return ac.maySearchAbove(ctx, who, *in)
}

// mayRemove checks whether a user may remove all names of a file, as unlink(2) would:
// this needs write permission on its directory and, if that is sticky, ownership of the
// file. For a file with several names only one is known, so the user must own the file.
//
// Errors: ErrForbidden; metadata.ErrNotExist.
func (ac *access) mayRemove(ctx context.Context, who Caller, in metadata.Inode) error {
	if who.UID == 0 {
		return nil
	}
	dir, err := ac.meta.Get(ctx, in.Parent)
	switch {
	case err != nil:
		return err
	case !who.May(&dir, PermWrite|PermExec):
		return fmt.Errorf("user %d may not remove names of directory %q, which has mode %o and belongs to user %d: %w",
			who.UID, dir.Name, dir.Mode.Perm(), dir.UID, ErrForbidden)
	case !who.MayUnlink(&dir, &in):
		return fmt.Errorf("directory %q is sticky, and the file belongs to user %d: %w", dir.Name, in.UID, ErrForbidden)
	case in.Nlink > 1 && !who.Owns(&in):
		return fmt.Errorf("the file has %d names, and belongs to user %d: %w", in.Nlink, in.UID, ErrForbidden)
	}
	return ac.maySearchAbove(ctx, who, dir)
}

// mayReceive checks whether a user may receive a published file, which removes it: its
// owner may, as in any sticky directory, and so may any user that can both read and
// write it.
//
// Errors: ErrForbidden.
func mayReceive(who Caller, in metadata.Inode) error {
	want := PermRead
	if who.UID != in.UID {
		want |= PermWrite
	}
	if !who.May(&in, want) {
		return fmt.Errorf("it has mode %o and belongs to user %d; user %d needs read and write permission to receive it: %w",
			in.Mode.Perm(), in.UID, who.UID, ErrForbidden)
	}
	return nil
}

// mayVacate checks whether a user may free a key: by removing the object that was made
// for it, or by taking the key from another file or from a tensor.
//
// Errors: ErrForbidden.
func (ac *access) mayVacate(ctx context.Context, who Caller, in carrier) error {
	if err := ac.mayUse(ctx, who, &in.Inode, PermWrite); err != nil || in.tensor != "" {
		return err
	}
	made, err := ac.isKeysDir(ctx, in.Parent)
	if err == nil && made {
		err = ac.mayRemove(ctx, who, in.Inode)
	}
	return err
}

// mayName checks whether users may create a name, or move a file to it, by whatever
// interface. Only hmcfs makes names in publish/ and in the directories of keyed
// objects, and those directories themselves.
//
// Errors: metadata.ErrPermission.
func (ac *access) mayName(ctx context.Context, dir Ino, name string) error {
	if ac.volatile(ctx, dir) {
		return fmt.Errorf("only hmcfs creates names in this directory: %w", metadata.ErrPermission)
	}
	return ac.mayMoveAway(ctx, dir, name)
}

// mayMoveAway checks whether users may move the file that has a name.
//
// Errors: metadata.ErrPermission.
func (ac *access) mayMoveAway(ctx context.Context, dir Ino, name string) error {
	if name != keysDirName {
		return nil
	}
	in, err := ac.meta.Get(ctx, dir)
	switch {
	case errors.Is(err, metadata.ErrNotExist):
		return nil // the operation itself reports it
	case err != nil:
		return err
	case in.Parent == metadata.RootIno:
		return fmt.Errorf("%s is reserved in a device's directory for its keyed objects: %w", name, metadata.ErrPermission)
	}
	return nil
}

// mayRename is mayName for a rename. A file enters publish/ by a rename from elsewhere,
// and leaves it, or a directory of keyed objects, by a rename too; their entries can't
// be exchanged with others.
func (ac *access) mayRename(ctx context.Context, r metadata.Rename) error {
	if err := ac.mayMoveAway(ctx, r.From, r.Name); err != nil {
		return err
	}
	switch {
	case r.Flags&metadata.Exchange != 0 && (ac.volatile(ctx, r.From) || ac.volatile(ctx, r.To)):
		return fmt.Errorf("can't exchange with a name that hmcfs manages: %w", metadata.ErrPermission)
	case r.To == metadata.PublishIno && r.From != metadata.PublishIno:
		return nil
	}
	return ac.mayName(ctx, r.To, r.NewName)
}

func (ac *access) volatile(ctx context.Context, dir Ino) bool {
	if dir == metadata.PublishIno {
		return true
	}
	made, err := ac.isKeysDir(ctx, dir)
	return made || err != nil
}
