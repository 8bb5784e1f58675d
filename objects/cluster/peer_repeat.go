package cluster

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// tries bounds the attempts to repeat a request in another session with the same daemon.
const tries = 2

// repetition is the state of a request that is repeated when its session breaks.
type repetition struct {
	// broken counts the sessions with one daemon that broke.
	broken int
	// doubtful is true if a daemon that is dead may have carried it out.
	doubtful bool
}

// repeat reports whether a request that failed in a session with err is sent again, in another one, and otherwise returns the
// error of the request: err, or the context's if the caller gave up while the node paused. again and once are those of question.
//
// Where the session broke, the daemon may carry the request out later, so only one that does no harm
// then is repeated. If another daemon continues the incarnation, the earlier one is dead and carries
// out nothing any more.
func (n *Node) repeat(ctx context.Context, r *repetition, s *session, err error, again, once bool) (repeated bool, failure error) {
	over, unsent := n.broke(s, err)
	if !over {
		return false, err
	}
	if n.Record().Held && (unsent || again || !once) {
		next, absent := n.live(ctx)
		switch {
		case absent == nil && next.life > s.life:
			r.broken, r.doubtful = 0, r.doubtful || !unsent
			return true, nil
		case errors.Is(absent, context.Canceled):
			return false, absent
		}
	}
	r.broken++
	return (unsent || again) && r.broken <= tries, err
}

// broke reports whether a request failed because its session is over, which it then ends on our side,
// and whether the request was certainly not carried out.
func (n *Node) broke(s *session, err error) (over, unsent bool) {
	switch {
	case errors.Is(err, comm.ErrNotConnected):
		unsent = true
	case errors.Is(err, control.ErrDisconnected):
	default:
		answer, ok := errors.AsType[*rpc.Error](err)
		if !ok || answer.Code != proto.CodeNoHello {
			return false, false
		}
		unsent = true
	}
	if silent, ok := errors.AsType[*rpc.SilentError](err); ok {
		n.suspend(s.origin, silent)
	}
	n.end(s, err)
	return true, unsent
}
