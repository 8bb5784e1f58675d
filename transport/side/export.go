package side

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// export is a local buffer that was offered:
//
//	offered ──> accepted ──> withdrawing ──> gone
//	   │           (by us, or the buffer is closed)
//	   └──> declined: gone
type export struct {
	export window.Export
	buffer *region.Buffer
	watch  *region.Watch
	// answered is closed by the first answer, gone when the peer no longer has a
	// window.
	answered, gone chan struct{}
	// The rest is guarded by Side.mu.
	hasAnswer   bool
	withdrawing bool
	// over means that the peer has no window: the export is being closed.
	over     bool
	declined string
	// late ends the session if the peer does not close its window.
	late *time.Timer
}

// Share offers the buffer of a key to the peer, and returns when the peer has
// opened it, or has declined.
//
// Errors: devices.ErrUnsupported for a buffer that uses the data connections; the
// context's; control.ErrDisconnected.
func (s *Side) Share(ctx context.Context, d wire.Descriptor, b *region.Buffer) error {
	e, err := s.offer(d, b)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, s.opts.Timeout, ErrStalled)
	defer cancel()
	select {
	case <-e.answered:
	case <-s.life.Done():
		return s.Err()
	case <-limited.Done():
		if errors.Is(context.Cause(limited), ErrStalled) {
			s.fail(fmt.Errorf("the peer has not answered an offer for %v: %w", s.opts.Timeout, ErrStalled))
			return s.Err()
		}
		s.withdraw(d.Key)
		return fmt.Errorf("offer %d bytes to %s: %w", d.Size, s.conn.Peer, ctx.Err())
	}
	s.mu.Lock()
	reason := e.declined
	s.mu.Unlock()
	if reason != "" {
		return fmt.Errorf("%s can't open memory of %d bytes: %s: %w", s.conn.Peer, d.Size, reason, devices.ErrUnsupported)
	}
	return nil
}

// offer exports a buffer and queues the offer.
func (s *Side) offer(d wire.Descriptor, b *region.Buffer) (*export, error) {
	x, err := s.provider.Export(b, d.Rights)
	if err != nil {
		return nil, err
	}
	o := x.Offer()
	frame := wire.Offer{Descriptor: d, Files: uint8(len(o.Files)), Blob: o.Blob}
	if len(o.Blob) > wire.MaxOffer || len(o.Files) > wire.MaxFiles {
		return nil, errors.Join(fmt.Errorf("offer of %d bytes and %d files exceeds the limits: %w", len(o.Blob), len(o.Files), devices.ErrUnsupported), x.Close())
	}
	e := &export{export: x, buffer: b, answered: make(chan struct{}), gone: make(chan struct{})}
	// Closing the buffer withdraws the offer; otherwise it would wait for the
	// provider, which holds it.
	e.watch = b.Watch(func() { s.withdraw(d.Key) })
	s.mu.Lock()
	err = s.sendLocked(message{frame: frame.Append(nil), files: o.Files})
	if err == nil {
		s.exports[d.Key] = e
	}
	s.mu.Unlock()
	if err != nil {
		b.Unwatch(e.watch)
		return nil, errors.Join(err, x.Close())
	}
	if err = b.Hold(); err != nil {
		// It was closed before the offer could be found.
		s.withdraw(d.Key)
		return e, nil
	}
	b.Drop()
	return e, nil
}

// Withdraw withdraws an offer, and returns when the peer no longer has a window:
// at once if it never had one.
//
// Errors: the context's; the offer is withdrawn all the same.
func (s *Side) Withdraw(ctx context.Context, key wire.Key) error {
	e := s.withdraw(key)
	if e == nil {
		return nil
	}
	select {
	case <-e.gone:
		return nil
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("withdraw memory from %s: %w", s.conn.Peer, ctx.Err())
	}
}

// withdraw starts to withdraw an offer. It returns nil if there is none.
func (s *Side) withdraw(key wire.Key) *export {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.exports[key]
	if e == nil || e.withdrawing || e.over || s.life.Err() != nil {
		return e
	}
	e.withdrawing = true
	if err := s.sendLocked(message{frame: wire.AppendKey(nil, wire.KindWithdraw, key)}); err != nil {
		go s.fail(err)
		return e
	}
	e.late = time.AfterFunc(s.opts.Timeout, func() {
		s.fail(fmt.Errorf("the peer has not closed a window for %v: %w", s.opts.Timeout, ErrStalled))
	})
	return e
}

// dispatch handles one frame of the peer. Only an OFFER has files.
func (s *Side) dispatch(f frame) error {
	if f.kind == wire.KindOffer {
		return s.offered(f)
	}
	if err := f.expect(0); err != nil {
		return err
	}
	switch f.kind {
	case wire.KindDecline:
		d, err := wire.ParseDecline(f.body)
		if err != nil {
			return err
		}
		if d.Reason == "" {
			d.Reason = "no reason given"
		}
		return s.answered(d.Key, d.Reason)
	case wire.KindAccept, wire.KindWithdraw, wire.KindWithdrawn:
		key, err := wire.ParseKey(f.body)
		if err != nil {
			return err
		}
		switch f.kind {
		case wire.KindAccept:
			return s.answered(key, "")
		case wire.KindWithdraw:
			return s.withdrawn(key)
		default:
			return s.released(key)
		}
	default:
		return fmt.Errorf("unexpected %s on a side connection: %w", f.kind, wire.ErrFrame)
	}
}

// answered handles an ACCEPT, or a DECLINE with its reason.
func (s *Side) answered(key wire.Key, declined string) error {
	s.mu.Lock()
	e := s.exports[key]
	if e == nil || e.hasAnswer {
		s.mu.Unlock()
		return fmt.Errorf("answer to an unknown offer: %w", ErrProtocol)
	}
	e.hasAnswer, e.declined = true, declined
	e.over = declined != "" && !e.withdrawing
	over := e.over
	s.mu.Unlock()
	if over {
		s.retire(key, e)
	}
	close(e.answered)
	return nil
}

// released handles a WITHDRAWN.
func (s *Side) released(key wire.Key) error {
	s.mu.Lock()
	e := s.exports[key]
	if e == nil || !e.withdrawing || !e.hasAnswer || e.over {
		s.mu.Unlock()
		return fmt.Errorf("the peer closed a window that was not withdrawn: %w", ErrProtocol)
	}
	e.over = true
	s.mu.Unlock()
	s.retire(key, e)
	return nil
}

// retire closes an export, which stays in the list until it is closed: a Withdraw
// of it that starts meanwhile waits for that. Only the reading goroutine calls
// it.
func (s *Side) retire(key wire.Key, e *export) {
	s.closeExport(key, e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exports[key] == e {
		delete(s.exports, key)
	}
}

// closeExport releases a buffer that the peer no longer has.
func (s *Side) closeExport(key wire.Key, e *export) {
	s.mu.Lock()
	if e.late != nil {
		e.late.Stop()
	}
	s.mu.Unlock()
	e.buffer.Unwatch(e.watch)
	if err := e.export.Close(); err != nil {
		s.opts.Logger.Warn("close an export", zap.Uint64("key", uint64(key)&0xffff), zap.Error(err))
	}
	close(e.gone)
}
