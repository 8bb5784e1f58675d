package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// lanes defines which requests wait for each other: moves of bytes take long, and a pull in
// turn asks another node.
func lanes() map[rpc.Method]rpc.Lane {
	return map[rpc.Method]rpc.Lane{
		proto.MethodRead: 1, proto.MethodWrite: 1, proto.MethodCopy: 1, proto.MethodPull: 2, proto.MethodSums: 1,
		proto.MethodCollect: 3, proto.MethodCollectWait: 3, proto.MethodCollectEnd: 2,
	}
}

// question is a request: in is a body of proto, or nil. The answer is decoded into out, a
// pointer, or dropped if out is nil.
type question struct {
	method rpc.Method
	in     any
	out    any
	// again is true if repeating the request does no harm, so it is repeated if the session
	// broke before the answer.
	again bool
	// once is true if the request must not be repeated even after the death of the daemon that may
	// have carried it out.
	once bool
	// settle converts the error of a request that a daemon may have carried out before it died, and
	// that was then repeated: it tells whether the first time has succeeded. nil keeps the error.
	settle func(ctx context.Context, s *session, err error) error
}

// ask sends a request to the node, within Options.Timeout.
//
// Errors: the owner's; ErrUnreachable, ErrStale, ErrDenied; the context's.
func (n *Node) ask(ctx context.Context, q question) error {
	ctx, cancel := context.WithTimeout(ctx, n.c.opts.Timeout)
	defer cancel()
	_, err := n.askOne(ctx, q)
	return err
}

// query sends a request that may be repeated to a node, and returns the answer.
//
// Errors: those of ask.
func query[A any](ctx context.Context, n *Node, m rpc.Method, in any) (answer A, err error) {
	err = n.ask(ctx, question{method: m, in: in, out: &answer, again: true})
	return answer, err
}

// askOne is ask, and also returns the session that the answer came in.
func (n *Node) askOne(ctx context.Context, q question) (*session, error) {
	var r repetition
	for {
		s, err := n.live(ctx)
		if err != nil {
			n.c.count.failures.Add(1)
			return nil, err
		}
		if err = n.askIn(ctx, s, q); err == nil {
			return s, nil
		}
		again, err := n.repeat(ctx, &r, s, err, q.again, q.once)
		if again {
			continue
		}
		err = n.failed(err)
		if r.doubtful && q.settle != nil {
			err = q.settle(ctx, s, err)
		}
		return s, err
	}
}

// failed converts an error of askIn to one that callers distinguish.
func (n *Node) failed(err error) error {
	if err == nil {
		return nil
	}
	if _, answered := errors.AsType[*rpc.Error](err); !answered {
		n.c.count.failures.Add(1)
	}
	err = n.c.codes.received(string(n.name), err)
	if errors.Is(err, errNoHello) {
		// Several sessions in a row broke before hello was said in them.
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}

// askIn sends a request once, in a session. Its error is the endpoint's.
func (n *Node) askIn(ctx context.Context, s *session, q question) error {
	var p []byte
	if q.in != nil {
		var err error
		if p, err = proto.Encode(q.in); err != nil {
			return err
		}
	}
	if s.ended() {
		return fmt.Errorf("the session has ended: %w", comm.ErrNotConnected)
	}
	n.c.count.questions.Add(1)
	body, err := n.c.ep.Call(ctx, n.rank, q.method, p)
	if err != nil || q.out == nil {
		return err
	}
	return proto.Decode(body, q.out)
}

// certain reports whether err implies that the owner is done with the request.
func certain(err error) bool {
	if err == nil {
		return true
	}
	answer, ok := errors.AsType[*rpc.Error](err)
	return ok && answer.Code != rpc.CodeDeadline && answer.Code != proto.CodeTimeout && answer.Code != proto.CodeCanceled
}
