package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// unlessGone settles a request that removes or moves a name, see question.settle: the kernel has seen
// the name before, so the dead daemon has removed it.
func unlessGone(_ context.Context, _ *session, err error) error {
	if errors.Is(err, metadata.ErrNotExist) {
		return nil
	}
	return err
}

// added settles a request that adds a name, see question.settle: out becomes its answer if the dead
// daemon has added the name.
func (n *Node) added(ctx context.Context, s *session, e *newEntry, out *proto.Attr, err error) error {
	if !errors.Is(err, metadata.ErrExist) {
		return err
	}
	found, failure := query[proto.Attr](ctx, n, proto.MethodLookup, &proto.LookupAsk{Cred: credToProto(e.who), Dir: uint64(e.dir), Name: e.name})
	if failure != nil {
		return err
	}
	a, failure := n.entered(&found, e.dir)
	if failure != nil {
		return err
	}
	made := e.ino != 0 && a.Ino == e.ino ||
		e.ino == 0 && a.Mode.Type() == e.kind && a.Target == e.target && n.madeBefore(s, a.Btime)
	if !made {
		return err
	}
	*out = found
	return nil
}

// madeBefore reports whether an inode was made by the daemon before the one of a session, at a time
// at which it may have had a request that was still waiting when it died. The node's own clock
// tells.
func (n *Node) madeBefore(s *session, born metadata.Timespec) bool {
	ago := s.started.Sub(time.Unix(born.Sec, int64(born.Nsec)))
	return ago >= 0 && ago < 2*n.c.opts.Timeout
}
