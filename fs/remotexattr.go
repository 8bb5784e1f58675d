package fs

import (
	"fmt"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// isOfMachine says that an attribute has no meaning at another machine: it
// passes memory between processes, or is of the rules of the machine whose
// kernel asks, as ls does for every file.
func isOfMachine(name string) bool {
	return name == objects.XattrHandle || name == objects.XattrBind || strings.HasPrefix(name, "security.")
}

// remoteXattr reads an attribute.
func (f *filesystem) remoteXattr(cancel <-chan struct{}, header *fuse.InHeader, name string) ([]byte, error) {
	p, err := f.remotes.find(metadata.Ino(header.NodeId))
	switch {
	case err != nil:
		return nil, err
	case p.isTop():
		return nil, metadata.ErrNoXattr
	case name == objects.XattrHandle:
		return nil, fmt.Errorf("memory of another node has no handle here: %w", objects.ErrUnsupported)
	case isOfMachine(name):
		return nil, metadata.ErrNoXattr
	}
	ctx, release := untilKilled(cancel, header.Pid)
	defer release()
	return p.GetXattr(ctx, f.creds.of(&header.Caller), p.ino, name)
}

// remoteXattrs lists the names of attributes.
func (f *filesystem) remoteXattrs(cancel <-chan struct{}, header *fuse.InHeader) ([]string, error) {
	p, err := f.remotes.find(metadata.Ino(header.NodeId))
	if err != nil || p.isTop() {
		return nil, err
	}
	ctx, release := untilKilled(cancel, header.Pid)
	defer release()
	return p.ListXattr(ctx, f.creds.of(&header.Caller), p.ino)
}

// setRemoteXattr sets an attribute; a nil one is removed.
func (f *filesystem) setRemoteXattr(cancel <-chan struct{}, header *fuse.InHeader, name string, set *cluster.Xattr) fuse.Status {
	p, err := f.remotes.find(metadata.Ino(header.NodeId))
	switch {
	case err != nil:
		return f.errs.status(err)
	case p.isTop():
		return fuse.EPERM
	case isOfMachine(name):
		return errNotSupported
	}
	f.noteKey(name)
	ctx, release := untilKilled(cancel, header.Pid)
	defer release()
	who := f.creds.of(&header.Caller)
	if set == nil {
		return f.errs.status(p.RemoveXattr(ctx, who, p.ino, name))
	}
	return f.errs.status(p.SetXattr(ctx, who, p.ino, *set))
}
