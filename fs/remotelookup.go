package fs

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
)

// lookupNode finds a node in nodes/.
func (f *filesystem) lookupNode(name string, out *fuse.EntryOut) fuse.Status {
	if len(name) > metadata.MaxName {
		return errNameTooLong
	}
	node, err := f.opts.Cluster.Node(members.Name(name))
	if err != nil {
		return f.errs.status(err)
	}
	n, err := f.remotes.of(node, 1)
	if err != nil {
		return f.errs.status(err)
	}
	a, err := f.topAttr(background(), n)
	if err != nil {
		n.refs.Add(-1)
		return f.errs.status(err)
	}
	f.fillTop(out, &a)
	return fuse.OK
}

// lookupRemote finds a name in a directory of another node.
func (f *filesystem) lookupRemote(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	dir, err := f.remotes.find(metadata.Ino(header.NodeId))
	switch {
	case err != nil:
		return f.errs.status(err)
	case len(name) > metadata.MaxName:
		return errNameTooLong
	}
	ctx, release := untilKilled(cancel, header.Pid)
	defer release()
	a, err := dir.Lookup(ctx, f.creds.of(&header.Caller), dir.ino, name)
	if err != nil {
		return f.errs.status(err)
	}
	status := f.enterRemote(dir.remoteNode, out, &a)
	if dir.isTop() && status == fuse.OK {
		out.SetEntryTimeout(f.timeout) // a device has its name for good
	}
	return status
}

// enterRemote answers an inode as its owner has told it, and counts the
// reference that the kernel gets by that.
func (f *filesystem) enterRemote(n *remoteNode, out *fuse.EntryOut, a *objects.Attr) fuse.Status {
	if err := n.adopt(a); err != nil {
		return f.errs.status(err)
	}
	n.refs.Add(1)
	fillRemote(out, a)
	return fuse.OK
}

// remoteAttr returns an inode of another node, with its numbers here.
func (f *filesystem) remoteAttr(ctx context.Context, who objects.Caller, ino metadata.Ino) (objects.Attr, error) {
	p, err := f.remotes.find(ino)
	if err != nil {
		return objects.Attr{}, err
	}
	if p.isTop() {
		return f.topAttr(ctx, p.remoteNode)
	}
	a, err := p.Attr(ctx, who, p.ino)
	if err == nil {
		err = p.adopt(&a)
	}
	return a, err
}

// askAttr is remoteAttr for a request.
func (f *filesystem) askAttr(cancel <-chan struct{}, c *fuse.Caller, ino metadata.Ino) (objects.Attr, fuse.Status) {
	ctx, release := untilKilled(cancel, c.Pid)
	defer release()
	a, err := f.remoteAttr(ctx, f.creds.of(c), ino)
	return a, f.inodeStatus(err)
}

// getRemoteAttr answers stat.
func (f *filesystem) getRemoteAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	a, status := f.askAttr(cancel, &in.Caller, metadata.Ino(in.NodeId))
	if status != fuse.OK {
		return status
	}
	fillAttr(&out.Attr, &a)
	out.SetTimeout(keepRemoteAttr(&a))
	return fuse.OK
}

// remoteStatx answers statx.
func (f *filesystem) remoteStatx(cancel <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	a, status := f.askAttr(cancel, &in.Caller, metadata.Ino(in.NodeId))
	if status != fuse.OK {
		return status
	}
	fillStatx(&out.Statx, &a)
	out.SetTimeout(keepRemoteAttr(&a))
	return fuse.OK
}

// readRemoteLink returns the target of a symlink.
func (f *filesystem) readRemoteLink(cancel <-chan struct{}, header *fuse.InHeader) ([]byte, fuse.Status) {
	a, status := f.askAttr(cancel, &header.Caller, metadata.Ino(header.NodeId))
	switch {
	case status != fuse.OK:
		return nil, status
	case !a.IsSymlink():
		return nil, fuse.EINVAL
	}
	return []byte(a.Target), fuse.OK
}

// lookupRemoteDot finds an inode by its number, or its parent.
func (f *filesystem) lookupRemoteDot(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	a, status := f.askAttr(cancel, &header.Caller, metadata.Ino(header.NodeId))
	if status == fuse.OK && name == ".." {
		if !isRemote(a.Parent) {
			return f.lookupDot(nodesIno, ".", out)
		}
		a, status = f.askAttr(cancel, &header.Caller, a.Parent)
	}
	if status != fuse.OK {
		return status
	}
	p, err := f.remotes.find(a.Ino)
	if err != nil {
		return f.errs.status(err)
	}
	p.refs.Add(1)
	fillRemote(out, &a)
	return fuse.OK
}

// remoteUsage is the device of another node that an inode is on; of nodes/NODE,
// all devices together.
func (f *filesystem) remoteUsage(cancel <-chan struct{}, header *fuse.InHeader) (devices.Usage, error) {
	p, err := f.remotes.find(metadata.Ino(header.NodeId))
	if err != nil {
		return devices.Usage{}, err
	}
	ctx, release := untilKilled(cancel, header.Pid)
	defer release()
	u, err := p.StatFS(ctx, f.creds.of(&header.Caller), p.ino)
	return devices.Usage{
		Total: devices.Size(u.Total), Free: devices.Size(u.Free), Used: devices.Size(u.Used),
	}, err
}
