package etcd

import (
	"cmp"
	"context"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// watch is a coord.Watch.
type watch struct {
	service *Service
	changes clientv3.WatchChan
	stop    context.CancelFunc
	// broken is closed when the cluster has lost history.
	broken <-chan struct{}
	closed atomic.Bool
	done   chan struct{} // closed with closed
}

// Watch starts a watch; see coord.Service. It returns when the server has started it.
func (s *Service) Watch(ctx context.Context, prefix string, after coord.Revision) (coord.Watch, error) {
	broken := s.brokenNow()
	if int64(after) > s.highest() {
		// The revision may come from another client. If it does not exist yet, the server
		// would wait for it.
		if _, now, err := s.List(ctx, prefix, "", 0); err != nil || after > now {
			return nil, cmp.Or(err, coord.ErrCompacted)
		}
	}
	// A server that has lost contact with its cluster's leader ends the watch.
	watching, stop := context.WithCancel(clientv3.WithRequireLeader(context.WithoutCancel(ctx)))
	// The library would wait for the server for as long as the watch may live.
	bounded, cancel := s.bound(ctx)
	defer cancel()
	unhook := context.AfterFunc(bounded, stop)
	w := &watch{
		service: s,
		changes: s.client.Watch(watching, s.prefix+prefix, clientv3.WithPrefix(),
			clientv3.WithRev(int64(after)+1), clientv3.WithCreatedNotify(), clientv3.WithFragment()),
		stop:   stop,
		broken: broken,
		done:   make(chan struct{}),
	}
	resp, ok := <-w.changes
	if !unhook() {
		return nil, s.fault(ctx, bounded.Err())
	}
	if !ok || resp.Err() != nil {
		stop()
		return nil, w.over(ctx, resp)
	}
	return w, nil
}

// Next waits for changes; see coord.Watch.
func (w *watch) Next(ctx context.Context) ([]coord.Event, error) {
	for {
		if err := w.ended(ctx); err != nil {
			return nil, err
		}
		select {
		case resp, ok := <-w.changes:
			if !ok || resp.Err() != nil {
				return nil, w.over(ctx, resp)
			}
			if len(resp.Events) > 0 {
				w.service.observe(0, resp.Header)
				return w.events(resp), nil
			}
		case <-w.broken:
		case <-w.done:
		case <-ctx.Done():
		}
	}
}

// ended returns the reason why waiting is pointless, or nil.
func (w *watch) ended(ctx context.Context) error {
	if w.closed.Load() || w.service.closed.Load() {
		return coord.ErrClosed
	}
	select {
	case <-w.broken:
		return coord.ErrCompacted
	default:
		return ctx.Err()
	}
}

// over returns the reason why no more changes will come, derived from the last answer.
func (w *watch) over(ctx context.Context, last clientv3.WatchResponse) error {
	err := last.Err()
	switch {
	case w.closed.Load() || w.service.closed.Load():
		return coord.ErrClosed
	case last.CompactRevision != 0:
		return coord.ErrCompacted
	case err == nil:
		return coord.ErrUnavailable
	}
	return w.service.fault(ctx, err)
}

func (w *watch) events(resp clientv3.WatchResponse) []coord.Event {
	events := make([]coord.Event, 0, len(resp.Events))
	for _, ev := range resp.Events {
		entry := w.service.entry(ev.Kv)
		events = append(events, coord.Event{Entry: entry, Deleted: ev.Type == clientv3.EventTypeDelete})
	}
	return events
}

// Close ends the watch; see coord.Watch.
func (w *watch) Close() {
	if !w.closed.Swap(true) {
		close(w.done)
		w.stop()
	}
}
