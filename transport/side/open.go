package side

import (
	"fmt"
	"maps"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/gate"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// opened is an open window of the peer's memory.
type opened struct {
	window window.Window
	size   devices.Size
	rights wire.Rights
	gate   gate.Gate
	// withdrawn notifies the operations in progress.
	withdrawn atomic.Bool
}

// Use is the right to operate on a window, until Leave.
type Use struct{ w *opened }

// Start starts an operation: see window.Window. It sets op.Withdrawn.
func (u Use) Start(op *window.Op, done window.Completer) {
	op.Withdrawn = &u.w.withdrawn
	u.w.window.Start(op, done)
}

// Found reports whether there is a window, that is, whether this is not the zero
// Use.
func (u Use) Found() bool { return u.w != nil }

// Map maps the bytes of the window: see window.Mapper.
func (u Use) Map() (window.Mapping, error) {
	if m, ok := u.w.window.(window.Mapper); ok {
		return m.Map()
	}
	return nil, fmt.Errorf("map memory of the peer: %w", devices.ErrUnsupported)
}

// Leave ends the use; the operation has completed.
func (u Use) Leave() { u.w.gate.Leave() }

// Use finds the window of a key, checks that it allows need on n bytes from off,
// and keeps it open until Leave. found is false for a key that has no window: the
// data connections check it. Use takes no lock and allocates nothing.
func (s *Side) Use(key wire.Key, need wire.Rights, off uint64, n devices.Size) (use Use, status wire.Status, found bool) {
	w := (*s.windows.Load())[key]
	if w == nil || !w.gate.Enter() {
		return Use{}, wire.StatusKey, false
	}
	switch {
	case !w.rights.Allows(need):
		status = wire.StatusRights
	case !(devices.Range{Off: devices.Offset(off), Len: n}).Within(w.size):
		status = wire.StatusRange
	default:
		return Use{w}, wire.StatusOK, true
	}
	w.gate.Leave()
	return Use{}, status, true
}

// Windows returns the number of open windows.
func (s *Side) Windows() int { return len(*s.windows.Load()) }

// offered handles an OFFER of the peer.
func (s *Side) offered(f frame) error {
	o, err := wire.ParseOffer(f.body)
	if err != nil {
		closeFiles(f.files)
		return err
	}
	if err = f.expect(o.Files); err != nil {
		return err
	}
	have := *s.windows.Load()
	if have[o.Key] != nil {
		closeFiles(f.files)
		return fmt.Errorf("second offer for the same key: %w", ErrProtocol)
	}
	if open := len(have) + int(s.closing.Load()); open >= MaxWindows {
		closeFiles(f.files)
		return s.decline(o.Key, fmt.Errorf("too many open windows: %d", open))
	}
	w, err := s.provider.Import(window.Offer{Blob: o.Blob, Files: f.files}, devices.Size(o.Size), o.Rights)
	if err != nil {
		return s.decline(o.Key, err)
	}
	s.publish(o.Key, &opened{window: w, size: devices.Size(o.Size), rights: o.Rights})
	return s.answer(wire.AppendKey(nil, wire.KindAccept, o.Key))
}

func (s *Side) decline(key wire.Key, cause error) error {
	d := wire.Decline{Key: key, Reason: cause.Error()}
	return s.answer(d.Append(nil))
}

// publish makes a window findable, or removes it if w is nil. It returns the
// previous one.
func (s *Side) publish(key wire.Key, w *opened) (before *opened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.windows.Load()
	before = old[key]
	next := maps.Clone(old)
	if w == nil {
		delete(next, key)
	} else {
		next[key] = w
	}
	s.windows.Store(&next)
	return before
}

// withdrawn handles a WITHDRAW of the peer. It is answered when the operations in
// progress have ended; for a key without a window, because it was declined, at
// once.
func (s *Side) withdrawn(key wire.Key) error {
	w := s.publish(key, nil)
	if w == nil {
		return s.answer(wire.AppendKey(nil, wire.KindWithdrawn, key))
	}
	s.closing.Add(1)
	s.running.Go(func() {
		s.closeWindow(key, w)
		s.closing.Add(-1)
		if err := s.answer(wire.AppendKey(nil, wire.KindWithdrawn, key)); err != nil {
			s.fail(err)
		}
	})
	return nil
}

// closeWindow closes a window that can no longer be found, once it has no users.
func (s *Side) closeWindow(key wire.Key, w *opened) {
	w.withdrawn.Store(true)
	w.gate.Shut()
	// The operations end on their own, or with the provider.
	w.gate.Drain()
	if err := w.window.Close(); err != nil {
		s.opts.Logger.Warn("close a window", zap.Uint64("key", uint64(key)&0xffff), zap.Error(err))
	}
}
