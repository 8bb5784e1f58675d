package fs

import (
	"cmp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// The attributes that have a meaning to the kernel that hmcfs does not implement. They are
// refused completely, so that no user relies on an access list or a capability that has no
// effect.
const (
	aclPrefix      = "system.posix_acl_"
	capabilityName = "security.capability"
	keyXattr       = "user.hmc.key"
)

// checkXattr returns OK if the store may be asked for an attribute, else the error.
func checkXattr(name string) fuse.Status {
	prefix, rest, _ := strings.Cut(name, ".")
	switch prefix {
	case "user", "trusted", "security":
	default:
		return errNotSupported
	}
	switch {
	case rest == "":
		return fuse.EINVAL
	case len(name) > metadata.MaxName:
		return fuse.ERANGE
	}
	return fuse.OK
}

// GetXAttr reads an extended attribute. The kernel asks for security.capability before it
// clears set-id bits, so that one is answered without the store.
//
// Errors: ENODATA, ERANGE when dest is too small, EOPNOTSUPP for namespaces
// that are not kept.
func (f *filesystem) GetXAttr(cancel <-chan struct{}, header *fuse.InHeader, name string, dest []byte) (n uint32, status fuse.Status) {
	defer f.ops.done(opGetXattr, time.Now(), &status)
	if name == capabilityName {
		return 0, fuse.ENODATA
	}
	if status := checkXattr(name); status != fuse.OK {
		return 0, status
	}
	value, err := f.xattr(cancel, header, name)
	if err != nil {
		return 0, f.errs.status(err)
	}
	return reply(dest, value)
}

func (f *filesystem) xattr(cancel <-chan struct{}, header *fuse.InHeader, name string) ([]byte, error) {
	ino := metadata.Ino(header.NodeId)
	if name == objects.XattrHandle && f.opts.frozen() {
		return nil, syscall.EROFS // whoever has the memory can write to it
	}
	if name == objects.XattrHandle && isView(ino) {
		n, err := f.views.checked(ino)
		if err != nil || n.tensor == nil {
			return nil, cmp.Or(err, metadata.ErrNoXattr)
		}
		return f.exportHandle(n.file, n.path, &header.Caller)
	}
	if n := f.provided(ino); n != nil {
		return n.xattr(name)
	}
	if name == objects.XattrHandle && isOwn(ino) {
		return f.exportHandle(ino, "", &header.Caller)
	}
	ctx, who, done := f.call(cancel, header, ino)
	defer done()
	return f.tree.GetXattr(ctx, who, ino, name)
}

// reply copies a value if it fits, or returns its length with ERANGE.
func reply(dest, value []byte) (uint32, fuse.Status) {
	if len(dest) < len(value) {
		return uint32(len(value)), fuse.ERANGE
	}
	copy(dest, value)
	return uint32(len(value)), fuse.OK
}

// ListXAttr lists the names, each terminated by a zero byte.
func (f *filesystem) ListXAttr(cancel <-chan struct{}, header *fuse.InHeader, dest []byte) (n uint32, status fuse.Status) {
	defer f.ops.done(opListXattr, time.Now(), &status)
	names, err := f.xattrs(cancel, header)
	if err != nil {
		return 0, f.errs.status(err)
	}
	var list []byte
	for _, name := range names {
		list = append(append(list, name...), 0)
	}
	return reply(dest, list)
}

func (f *filesystem) xattrs(cancel <-chan struct{}, header *fuse.InHeader) ([]string, error) {
	ino := metadata.Ino(header.NodeId)
	if n := f.provided(ino); n != nil {
		return n.xattrs()
	}
	ctx, who, done := f.call(cancel, header, ino)
	defer done()
	return f.tree.ListXattr(ctx, who, ino)
}

// SetXAttr sets an extended attribute.
//
// Errors: EEXIST and ENODATA depending on the flags, E2BIG, EINVAL, EPERM, EOPNOTSUPP for
// access lists, capabilities, and attributes that only hmcfs sets.
func (f *filesystem) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	status, _ := setXattr(f, cancel, in, name, value)
	return status
}

// setXattr is SetXAttr, and returns the reason for its status too, if one is known.
func setXattr(f *filesystem, cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) (status fuse.Status, why error) {
	defer f.ops.done(opSetXattr, time.Now(), &status)
	ino := metadata.Ino(in.NodeId)
	// The store may keep the value, but go-fuse reuses its buffer.
	x := objects.Xattr{Name: name, Value: append([]byte{}, value...), Flags: metadata.XattrFlags(in.Flags)}
	if done, err := f.views.changeKey(ino, &x); done {
		noteKey(&f.names, name)
		return f.errs.status(f.explained(err)), err
	}
	if status := f.checkXattrChange(ino, name); status != fuse.OK {
		return status, nil
	}
	if len(value) > metadata.MaxXattr {
		return errTooBig, nil
	}
	if name == objects.XattrBind && isOwn(ino) {
		why = f.bind(ino, &in.Caller, value)
		return f.errs.status(why), why
	}
	noteKey(&f.names, name)
	ctx, who, done := f.call(cancel, &in.InHeader, ino)
	defer done()
	why = f.explained(f.tree.SetXattr(ctx, who, ino, x))
	return f.errs.status(why), why
}

// RemoveXAttr removes an extended attribute.
func (f *filesystem) RemoveXAttr(cancel <-chan struct{}, header *fuse.InHeader, name string) (status fuse.Status) {
	defer f.ops.done(opRemoveXattr, time.Now(), &status)
	ino := metadata.Ino(header.NodeId)
	if done, err := f.views.changeKey(ino, &objects.Xattr{Name: name}); done {
		noteKey(&f.names, name)
		return f.errs.status(err)
	}
	if f.refusal(ino) == fuse.EROFS {
		return fuse.EROFS
	}
	if name == capabilityName || strings.HasPrefix(name, aclPrefix) {
		return fuse.ENODATA // none can have been set
	}
	if status := f.checkXattrChange(ino, name); status != fuse.OK {
		return status
	}
	noteKey(&f.names, name)
	ctx, who, done := f.call(cancel, header, ino)
	defer done()
	return f.errs.status(f.tree.RemoveXattr(ctx, who, ino, name))
}

func (f *filesystem) checkXattrChange(ino metadata.Ino, name string) fuse.Status {
	if status := f.ownRefusal(ino); status != fuse.OK {
		return status
	}
	if name == capabilityName {
		return errNotSupported
	}
	return checkXattr(name)
}

// noteKey makes listings of keys/ be read again when a key changes.
func noteKey(names *atomic.Uint64, name string) {
	if name == keyXattr {
		names.Add(1)
	}
}
