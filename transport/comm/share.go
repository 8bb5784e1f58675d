package comm

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// maxWaited is the largest request, in bytes, that a waiting caller moves itself:
// it does not check its context meanwhile.
const maxWaited = 64 * devices.MiB

// Share grants a peer the right to use a buffer, for as long as the session, the
// buffer and the key live. The peer needs the descriptor: send it in a message.
// If the session's transport can open the buffer, the peer has done so when Share
// returns.
func (c *Communicator) Share(ctx context.Context, peer wire.Rank, b *region.Buffer, rights wire.Rights) (wire.Descriptor, error) {
	s, err := c.session(ctx, peer)
	if err != nil {
		return wire.Descriptor{}, err
	}
	d, err := s.keys.Grant(b, rights)
	if err = errors.Join(s.err(), err); err != nil {
		return wire.Descriptor{}, fmt.Errorf("share with %s: %w", peer, err)
	}
	if s.side == nil {
		return d, nil
	}
	err = s.side.Share(ctx, d, b)
	if errors.Is(err, devices.ErrUnsupported) {
		c.log.Debug("memory is shared through the data connections only", zap.Uint32("rank", uint32(peer)), zap.Error(err))
		return d, nil
	}
	if err != nil {
		// The key will not be used.
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = s.keys.Revoke(ended, d.Key)
		return wire.Descriptor{}, fmt.Errorf("share with %s: %w", peer, s.seen(err))
	}
	return d, nil
}

// Revoke revokes a key: see region.Keys. When Revoke returns nil, the peer has
// closed everything that it has opened by the key.
func (c *Communicator) Revoke(ctx context.Context, peer wire.Rank, key wire.Key) error {
	s, err := c.session(ctx, peer)
	if err != nil {
		return err
	}
	err = s.keys.Revoke(ctx, key)
	if s.side == nil || errors.Is(err, region.ErrKey) {
		return err
	}
	return errors.Join(err, s.side.Withdraw(ctx, key))
}

// Carrier returns the transport that carries the puts and gets with a key of a
// peer: the session's transport, or TCP if that could not open the buffer.
func (c *Communicator) Carrier(ctx context.Context, peer wire.Rank, d wire.Descriptor) (Transport, error) {
	s, err := c.session(ctx, peer)
	if err != nil {
		return "", err
	}
	if s.side == nil {
		return TCP, nil
	}
	use, status, found := s.side.Use(d.Key, 0, 0, 0)
	if !found {
		return TCP, nil
	}
	if status == wire.StatusOK {
		use.Leave()
	}
	return Transport(s.took.route.id.String()), nil
}

// open passes a request to the window of its key. found is false if the key has
// none.
func (s *session) open(r *Request, kind wire.Kind, need wire.Rights, op *Op, waits bool) (found bool, err error) {
	if s.side == nil {
		return false, nil
	}
	use, status, found := s.side.Use(op.Remote.Key, need, op.RemoteOff, op.Size)
	if !found || status != wire.StatusOK {
		return found, region.StatusError(status)
	}
	if err := op.Local.Hold(); err != nil {
		use.Leave()
		return true, err
	}
	r.use = use
	r.op = window.Op{
		Kind: kind, Local: op.Local, LocalOff: op.LocalOff, RemoteOff: op.RemoteOff, Size: op.Size,
		Waits: waits && op.Size <= maxWaited, GivenUp: &r.givenUp,
	}
	use.Start(&r.op, (*windowed)(r))
	return true, nil
}

// windowed is a request that goes through a window.
type windowed Request

// Complete is called by the provider.
func (w *windowed) Complete(err error) {
	r := (*Request)(w)
	r.op.Local.Drop()
	r.use.Leave()
	if err != nil {
		err = r.session.windowError(err)
	}
	r.Complete(err)
}

// windowError returns the caller's error for a failed operation: the end of the
// session, if that is the cause.
func (s *session) windowError(err error) error {
	cause := s.side.Err()
	if cause == nil {
		cause = s.side.Provider().Err()
	}
	if cause == nil {
		return err
	}
	s.end(cause)
	return fmt.Errorf("%w: %w", s.err(), err)
}

// SendTag fences and sends a tag: when the peer receives it, it sees the data of
// every put that was started before. It returns when the tag is on its way.
func (c *Communicator) SendTag(ctx context.Context, peer wire.Rank, tag wire.Tag) error {
	s, err := c.session(ctx, peer)
	if err != nil {
		return err
	}
	if err := s.fence(ctx); err != nil {
		return err
	}
	if s.tags == nil {
		return s.seen(s.link.SendTag(ctx, tag))
	}
	return s.tagError(ctx, s.tags.SendTag(ctx, tag))
}

// RecvTag returns the next tag of a peer; those that arrived before the session
// ended are still returned.
func (c *Communicator) RecvTag(ctx context.Context, peer wire.Rank) (wire.Tag, error) {
	s, err := c.session(ctx, peer)
	if err != nil {
		return 0, err
	}
	s.recall()
	var tag wire.Tag
	if s.tags == nil {
		tag, err = s.link.RecvTag(ctx)
		return tag, s.seen(err)
	}
	tag, err = s.tags.RecvTag(ctx)
	return tag, s.tagError(ctx, err)
}

// tagError returns the caller's error of a provider that can't carry a tag: the
// end of the session, unless it is the error of the caller's context.
func (s *session) tagError(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	return s.windowError(err)
}
