package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

func isGone(err error) bool { return errors.Is(err, metadata.ErrNotExist) }

// attrFor encodes an inode for a session that will be notified when the inode changes. mark is
// the pusher's mark from before the inode was read; names is true if the name by which the
// inode was found has not changed since.
func (s *server) attrFor(g *servedSession, a *objects.Attr, mark uint64, names bool) proto.Attr {
	var keep uint32
	if s.push.remember(g, topicOf(a.Ino), mark) && names {
		keep = s.keep(a)
	}
	out := attrToProto(a, keep)
	out.Order = mark
	return out
}

// changed is told for an inode that the session itself has just changed, so that it is read
// again: a is its state at the change, used if that fails.
func (s *server) changed(ctx context.Context, g *servedSession, a *objects.Attr) proto.Attr {
	mark := s.push.mark()
	now, err := s.o.Store.Attr(ctx, a.Ino)
	if err != nil {
		return attrToProto(a, 0)
	}
	return s.attrFor(g, &now, mark, true)
}

// keep returns the time for which an inode may be cached, in milliseconds: no longer than the
// inode lives.
func (s *server) keep(a *objects.Attr) uint32 {
	ttl := s.o.AttrTTL
	if a.Expires != (metadata.Timespec{}) {
		ttl = max(0, min(ttl, time.Until(a.Expires.Time())))
	}
	return uint32(ttl.Milliseconds())
}

func (s *server) lookup(ctx context.Context, g *servedSession, u User, q *proto.LookupAsk) (any, error) {
	mark := s.push.mark()
	if _, err := s.folder(ctx, u, q.Dir, objects.PermExec); err != nil {
		return nil, err
	}
	names := s.push.remember(g, namesOf(metadata.Ino(q.Dir)), mark)
	a, err := s.o.Store.Lookup(ctx, metadata.Ino(q.Dir), q.Name)
	if err != nil {
		return nil, err
	}
	return new(s.attrFor(g, &a, mark, names)), nil
}

func (s *server) attr(ctx context.Context, g *servedSession, _ User, q *proto.InoAsk) (any, error) {
	mark := s.push.mark()
	a, err := s.inode(ctx, q.Ino)
	if err != nil {
		return nil, err
	}
	return new(s.attrFor(g, &a, mark, true)), nil
}

const (
	// defaultPage is the number of entries of a page if the request sets no limit.
	defaultPage = 1024
	// entryRoom is an upper bound of the size of an entry without its texts.
	entryRoom = 256
	// pageRoom bounds the total size of the entries in an answer.
	pageRoom = rpc.MaxAnswer - 64
)

// readDir lists a page of a directory, with the attributes of each entry if the user may look
// them up.
func (s *server) readDir(ctx context.Context, g *servedSession, u User, q *proto.ReadDirAsk) (any, error) {
	mark := s.push.mark()
	dir, err := s.folder(ctx, u, q.Dir, objects.PermRead)
	if err != nil {
		return nil, err
	}
	s.push.remember(g, namesOf(dir.Ino), mark)
	limit := int(min(q.Limit, proto.MaxEntries))
	if limit == 0 {
		limit = defaultPage
	}
	entries, err := s.o.Store.ReadDir(ctx, dir.Ino, metadata.Cookie(q.Cookie), limit)
	if err != nil {
		return nil, err
	}
	// The store omits absent devices from the root, so that a short page of it need not be the
	// last one.
	out := proto.ReadDirAnswer{
		Entries: make([]proto.Entry, 0, len(entries)),
		End:     len(entries) == 0 || len(entries) < limit && dir.Ino != metadata.RootIno,
	}
	know := u.May(&dir.Inode, objects.PermExec)
	for i, room := 0, pageRoom; i < len(entries); i++ {
		entry := entryToProto(&entries[i])
		if know {
			// An entry removed since is listed without attributes.
			if a, err := s.o.Store.Attr(ctx, entries[i].Ino); err == nil {
				entry.Attr = s.attrFor(g, &a, mark, true)
			} else if ctx.Err() != nil {
				return nil, err
			}
		}
		if room -= entrySize(&entry); room < 0 {
			out.End = false
			break
		}
		out.Entries = append(out.Entries, entry)
	}
	return &out, nil
}

func entrySize(e *proto.Entry) int {
	a := &e.Attr
	return entryRoom + len(e.Name) + len(a.Device) + len(a.Target) + len(a.Key) + len(a.Path) + len(a.State)
}

// permNames are the permissions in a directory that are needed to create and remove names.
const permNames = objects.PermWrite | objects.PermExec

func (s *server) create(ctx context.Context, g *servedSession, u User, q *proto.CreateAsk) (any, error) {
	a, err := s.createIn(ctx, g, u, q)
	if err != nil {
		return nil, err
	}
	return new(s.changed(ctx, g, &a)), nil
}

// createIn creates an inode in a directory.
func (s *server) createIn(ctx context.Context, g *servedSession, u User, q *proto.CreateAsk) (objects.Attr, error) {
	dir, err := s.folder(ctx, u, q.Dir, permNames)
	if err != nil {
		return objects.Attr{}, err
	}
	n := metadata.Node{Mode: metadata.Mode(q.Mode), UID: u.UID, GID: u.GID, Rdev: q.Rdev, Target: q.Target}
	if err = u.PermitCreate(&dir, &n); err != nil {
		return objects.Attr{}, err
	}
	a, err := s.o.Store.Create(ctx, dir.Ino, q.Name, n)
	if err != nil {
		return objects.Attr{}, err
	}
	s.served(0, dir.Ino)
	s.push.remember(g, namesOf(dir.Ino), 0)
	return a, nil
}

func (s *server) link(ctx context.Context, g *servedSession, u User, q *proto.LinkAsk) (any, error) {
	dir, err := s.folder(ctx, u, q.Dir, permNames)
	if err != nil {
		return nil, err
	}
	was, err := s.inode(ctx, q.Ino)
	if err != nil {
		return nil, err
	}
	a, err := s.o.Store.Link(ctx, was.Ino, dir.Ino, q.Name)
	if err != nil {
		return nil, err
	}
	s.served(a.Ino, dir.Ino)
	s.push.remember(g, namesOf(dir.Ino), 0)
	return new(s.changed(ctx, g, &a)), nil
}

func (s *server) remove(ctx context.Context, _ *servedSession, u User, q *proto.RemoveAsk) (any, error) {
	dir, err := s.folder(ctx, u, q.Dir, permNames)
	if err != nil {
		return nil, err
	}
	victim, err := s.o.Store.Lookup(ctx, dir.Ino, q.Name)
	if err != nil {
		return nil, err
	}
	if q.Folder {
		err = s.o.Store.RmdirAs(ctx, u.Caller, dir.Ino, q.Name)
	} else {
		err = s.o.Store.UnlinkAs(ctx, u.Caller, dir.Ino, q.Name)
	}
	s.o.Store.Drop(victim.Ino)
	s.served(victim.Ino, dir.Ino)
	return outdated(victim.Ino), err
}

// outdated lists the inodes whose attributes a session has changed by changing names. It is
// part of the answer, since the notice takes another route and may arrive later.
func outdated(inos ...metadata.Ino) *proto.Invalid {
	out := &proto.Invalid{}
	for _, ino := range inos {
		if ino != 0 {
			out.Inos = append(out.Inos, uint64(ino))
		}
	}
	return out
}

func (s *server) rename(ctx context.Context, _ *servedSession, u User, q *proto.RenameAsk) (any, error) {
	from, err := s.folder(ctx, u, q.From, permNames)
	if err != nil {
		return nil, err
	}
	to, err := s.folder(ctx, u, q.To, permNames)
	if err != nil {
		return nil, err
	}
	moved, err := s.o.Store.Lookup(ctx, from.Ino, q.Name)
	if err != nil {
		return nil, err
	}
	if err = u.MayMove(&from, &to, &moved); err != nil {
		return nil, err
	}
	replaced, err := s.o.Store.Lookup(ctx, to.Ino, q.NewName)
	if err == nil && metadata.RenameFlags(q.Flags)&metadata.Exchange != 0 {
		err = u.MayMove(&to, &from, &replaced)
	} else if err == nil {
		err = u.MayRemove(&to, &replaced)
	}
	if err != nil && !isGone(err) {
		return nil, err
	}
	err = s.o.Store.RenameAs(ctx, u.Caller, metadata.Rename{
		From: from.Ino, Name: q.Name, To: to.Ino, NewName: q.NewName, Flags: metadata.RenameFlags(q.Flags),
	})
	s.o.Store.Drop(replaced.Ino)
	s.served(moved.Ino, from.Ino)
	s.served(replaced.Ino, to.Ino)
	return outdated(moved.Ino, replaced.Ino), err
}

// MayMove checks whether a user may move an inode between two directories that the user may
// write. Moving a directory to another parent modifies the directory itself.
func (u User) MayMove(from, to, moved *objects.Attr) error {
	if err := u.MayRemove(from, moved); err != nil {
		return err
	}
	if moved.IsDir() && from.Ino != to.Ino {
		if err := u.Need(moved, objects.PermWrite); err != nil {
			return fmt.Errorf("move a directory: %w", err)
		}
	}
	return nil
}
