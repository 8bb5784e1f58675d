package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

func (s *server) setAttr(ctx context.Context, g *servedSession, u User, q *proto.SetAttrAsk) (any, error) {
	rights, err := rightsOf(ctx, g, q)
	if err != nil {
		return nil, err
	}
	c, err := changeFromProto(q)
	if err != nil {
		return nil, err
	}
	if err = ours(q.Ino); err != nil {
		return nil, err
	}
	before, err := s.inode(ctx, q.Ino)
	if err != nil {
		return nil, err
	}
	if err = u.PermitChange(&before, &c, rights); err != nil {
		return nil, err
	}
	after, err := s.o.Store.SetAttr(ctx, before.Ino, c)
	s.served(before.Ino, 0)
	if err != nil {
		return nil, err
	}
	return new(s.changed(ctx, g, &after)), nil
}

// ours refuses changes of inodes that belong to hmcfs, such as the root.
//
// Errors: metadata.ErrPermission.
func ours(ino uint64) error {
	if metadata.Ino(ino) < metadata.FirstIno {
		return fmt.Errorf("change inode %d: %w", ino, metadata.ErrPermission)
	}
	return nil
}

// rightsOf returns what, beside the mode, entitles to a change, and inserts the present time
// where it is requested.
func rightsOf(ctx context.Context, g *servedSession, q *proto.SetAttrAsk) (ChangeRights, error) {
	now := timeToProto(metadata.TimespecOf(time.Now()))
	rights := ChangeRights{Present: q.Set&(proto.SetAtime|proto.SetMtime) != 0}
	for _, t := range []struct {
		bit uint32
		at  *proto.Time
	}{{proto.SetAtime, &q.Atime}, {proto.SetMtime, &q.Mtime}} {
		switch {
		case t.at.Nsec == proto.TimeNow:
			*t.at = now
		case q.Set&t.bit != 0:
			rights.Present = false
		}
	}
	if q.Handle == 0 {
		return rights, nil
	}
	h, err := g.use(q.Handle, objects.PermWrite)
	if err != nil {
		return rights, err
	}
	defer g.done(ctx, h)
	if h.file.Ino() != metadata.Ino(q.Ino) {
		return rights, fmt.Errorf("handle %#x does not refer to inode %d: %w", q.Handle, q.Ino, ErrStale)
	}
	rights.Writer = true
	return rights, nil
}

// xattrOf returns the inode of a request about an extended attribute.
func (s *server) xattrOf(ctx context.Context, u User, q *proto.XattrAsk, access XattrAccess) (objects.Attr, error) {
	if access == XattrWrite {
		if err := ours(q.Ino); err != nil {
			return objects.Attr{}, err
		}
	}
	a, err := s.inode(ctx, q.Ino)
	if err == nil {
		err = u.permitXattr(&a, q.Name, access)
	}
	return a, err
}

func (s *server) getXattr(ctx context.Context, _ *servedSession, u User, q *proto.XattrAsk) (any, error) {
	a, err := s.xattrOf(ctx, u, q, XattrRead)
	if err != nil {
		return nil, err
	}
	value, err := s.o.Store.GetXattr(ctx, a.Ino, q.Name)
	if err != nil {
		return nil, err
	}
	return &proto.XattrAnswer{Value: value}, nil
}

func (s *server) listXattr(ctx context.Context, _ *servedSession, u User, q *proto.InoAsk) (any, error) {
	a, err := s.inode(ctx, q.Ino)
	if err != nil {
		return nil, err
	}
	names, err := s.o.Store.ListXattr(ctx, a.Ino)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !u.MayKnowXattr(name) })
	return &proto.ListXattrAnswer{Names: names}, nil
}

func (s *server) setXattr(ctx context.Context, _ *servedSession, u User, q *proto.XattrAsk) (any, error) {
	a, err := s.xattrOf(ctx, u, q, XattrWrite)
	if err != nil {
		return nil, err
	}
	if flags := metadata.XattrFlags(q.Flags); q.Name == objects.XattrTTL {
		err = s.o.Store.SetTTL(ctx, u.Caller, a.Ino, string(q.Value), flags)
	} else {
		err = s.o.Store.SetXattr(ctx, a.Ino, q.Name, q.Value, flags)
	}
	s.servedXattr(&a, q.Name)
	return nil, err
}

func (s *server) removeXattr(ctx context.Context, _ *servedSession, u User, q *proto.XattrAsk) (any, error) {
	a, err := s.xattrOf(ctx, u, q, XattrWrite)
	if err != nil {
		return nil, err
	}
	err = s.o.Store.RemoveXattr(ctx, a.Ino, q.Name)
	s.servedXattr(&a, q.Name)
	return nil, err
}

// servedXattr is served for an attribute that was set or removed. A key is also a name under
// keys/.
func (s *server) servedXattr(a *objects.Attr, name string) {
	if name == xattrKey {
		s.served(a.Ino, a.Parent)
		return
	}
	s.served(a.Ino, 0)
}

// statFS returns the use of the device that holds an inode; for the root, which is on no
// device, that of all together.
func (s *server) statFS(ctx context.Context, _ *servedSession, _ User, q *proto.InoAsk) (any, error) {
	if metadata.Ino(q.Ino) != metadata.RootIno {
		a, err := s.inode(ctx, q.Ino)
		if err != nil {
			return nil, err
		}
		d, err := s.o.Store.DeviceOf(ctx, a.Ino)
		if err != nil {
			return nil, err
		}
		return new(usageOf(&d)), nil
	}
	all, err := s.o.Store.Devices(ctx)
	if err != nil {
		return nil, err
	}
	var sum proto.StatFSAnswer
	for i := range all {
		one := usageOf(&all[i])
		sum.Total += one.Total
		sum.Free += one.Free
		sum.Used += one.Used
	}
	return &sum, nil
}
