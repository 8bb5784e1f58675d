package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// Attr returns an inode's attributes.
func (n *Node) Attr(ctx context.Context, who objects.Caller, ino objects.Ino) (objects.Attr, error) {
	if a, ok := n.cache.attr(userKey(who), ino); ok {
		return a, nil
	}
	return n.freshAttr(ctx, who, ino)
}

// freshAttr is Attr without the cache.
func (n *Node) freshAttr(ctx context.Context, who objects.Caller, ino objects.Ino) (objects.Attr, error) {
	m := n.cache.begin()
	ask := &proto.InoAsk{Cred: credToProto(who), Ino: uint64(ino)}
	out, err := query[proto.Attr](ctx, n, proto.MethodAttr, ask)
	if err != nil {
		return objects.Attr{}, err
	}
	a, err := n.received(&out, ino)
	if err == nil {
		m.order = out.Order
		n.noteSize(m, &a)
		n.cache.putAttr(m, userKey(who), &a, out.Keep)
	}
	return a, err
}

// SetAttr changes attributes. If by is not nil, its permission to write covers a change of
// size.
func (n *Node) SetAttr(ctx context.Context, who objects.Caller, ino objects.Ino, c objects.Change, by *File) (objects.Attr, error) {
	in := &proto.SetAttrAsk{Cred: credToProto(who), Ino: uint64(ino)}
	changeToProto(c, in)
	var out proto.Attr
	var err error
	if by == nil {
		err = n.ask(ctx, question{method: proto.MethodSetAttr, in: in, out: &out})
	} else {
		err = by.ask(ctx, false, func(handle uint64) question {
			in.Handle = handle
			return question{method: proto.MethodSetAttr, in: in, out: &out}
		})
	}
	n.touched(ino)
	if c.Size != nil {
		n.inos.changed(Invalidation{Inos: []objects.Ino{ino}})
	}
	if err != nil {
		return objects.Attr{}, err
	}
	a, err := n.received(&out, ino)
	if err == nil {
		n.inos.noteSize(&a, out.Order)
	}
	return a, err
}

// GetXattr reads an extended attribute.
func (n *Node) GetXattr(ctx context.Context, who objects.Caller, ino objects.Ino, name string) ([]byte, error) {
	ask := &proto.XattrAsk{Cred: credToProto(who), Ino: uint64(ino), Name: name}
	out, err := query[proto.XattrAnswer](ctx, n, proto.MethodGetXattr, ask)
	if err == nil && len(out.Value) > metadata.MaxXattr {
		err = fmt.Errorf("node %s sent attribute %q with %d bytes: %w", n.name, name, len(out.Value), proto.ErrBody)
	}
	if err != nil {
		return nil, err
	}
	return out.Value, nil
}

// ListXattr lists the names of an inode's extended attributes.
func (n *Node) ListXattr(ctx context.Context, who objects.Caller, ino objects.Ino) ([]string, error) {
	ask := &proto.InoAsk{Cred: credToProto(who), Ino: uint64(ino)}
	out, err := query[proto.ListXattrAnswer](ctx, n, proto.MethodListXattr, ask)
	if err == nil {
		err = checkXattrs(out.Names)
	}
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.name, err)
	}
	return out.Names, nil
}

// checkXattrs checks that a list of names can be that of an inode: the kernel accepts up to 64
// KiB.
func checkXattrs(names []string) error {
	size := 0
	for _, name := range names {
		if name == "" || len(name) > metadata.MaxName || strings.Contains(name, "\x00") {
			return fmt.Errorf("invalid attribute name of %d bytes: %w", len(name), proto.ErrBody)
		}
		size += len(name) + 1
	}
	if size > metadata.MaxXattr {
		return fmt.Errorf("attribute names of %d bytes in all: %w", size, proto.ErrBody)
	}
	return nil
}

// SetXattr sets an extended attribute.
func (n *Node) SetXattr(ctx context.Context, who objects.Caller, ino objects.Ino, x objects.Xattr) error {
	defer n.touched(ino)
	return n.ask(ctx, question{method: proto.MethodSetXattr, in: &proto.XattrAsk{
		Cred: credToProto(who), Ino: uint64(ino), Name: x.Name, Value: x.Value, Flags: uint32(x.Flags),
	}, settle: func(ctx context.Context, _ *session, err error) error {
		if has, failure := n.GetXattr(ctx, who, ino, x.Name); failure == nil && bytes.Equal(has, x.Value) {
			return nil
		}
		return err
	}})
}

// RemoveXattr removes an extended attribute.
func (n *Node) RemoveXattr(ctx context.Context, who objects.Caller, ino objects.Ino, name string) error {
	defer n.touched(ino)
	return n.ask(ctx, question{
		method: proto.MethodRemoveXattr,
		in:     &proto.XattrAsk{Cred: credToProto(who), Ino: uint64(ino), Name: name},
		settle: func(_ context.Context, _ *session, err error) error {
			if errors.Is(err, metadata.ErrNoXattr) {
				return nil
			}
			return err
		},
	})
}

// StatFS returns the use of the device that holds an inode; for the root, of all devices.
func (n *Node) StatFS(ctx context.Context, who objects.Caller, ino objects.Ino) (devices.Usage, error) {
	ask := &proto.InoAsk{Cred: credToProto(who), Ino: uint64(ino)}
	out, err := query[proto.StatFSAnswer](ctx, n, proto.MethodStatFS, ask)
	if err == nil && (out.Free > out.Total || out.Device != "" && !IsShown(out.Device)) {
		err = fmt.Errorf("node %s sent invalid usage of device %.64q: %d bytes free of %d: %w", n.name, out.Device, out.Free, out.Total, proto.ErrBody)
	}
	if err != nil {
		return devices.Usage{}, err
	}
	return devices.Usage{Total: devices.Size(out.Total), Free: devices.Size(out.Free), Used: devices.Size(out.Used)}, nil
}
