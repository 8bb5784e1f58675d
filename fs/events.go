package fs

import (
	"context"
	"encoding/json"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// eventsAhead is the number of lines buffered for a reader beyond the store's queue, so
// that one read returns several.
const eventsAhead = 64

// maxStreams bounds the open streams, since each can hold many unread events. Half of them
// are reserved for root. A user other than root may have at most maxUserStreams, so that no
// user takes the streams of the others.
const (
	maxStreams     = 128
	maxUserStreams = 16
)

// streams counts the open streams. The zero value is ready for use.
type streams struct {
	mu sync.Mutex
	// +checklocks:mu
	all int
	// +checklocks:mu
	of map[uint32]int
	// refused and refusedUsers count the refusals by maxStreams and maxUserStreams.
	// +checklocks:mu
	refused, refusedUsers uint64
}

// enter counts one more stream of a user, unless a bound is reached.
func (s *streams) enter(uid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := maxStreams
	if uid != 0 {
		most /= 2
	}
	switch {
	case uid != 0 && s.of[uid] >= maxUserStreams:
		s.refusedUsers++
		return false
	case s.all >= most:
		s.refused++
		return false
	}
	if s.of == nil {
		s.of = map[uint32]int{}
	}
	s.all++
	s.of[uid]++
	return true
}

// leave counts one stream of a user less.
func (s *streams) leave(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[uid]--; s.of[uid] == 0 {
		delete(s.of, uid)
	}
}

func (s *streams) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// limits lists the bounds of the streams of .hmcfs/events and the number of refusals by
// each.
func (s *streams) limits() []metadata.LimitStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []metadata.LimitStatus{
		{Name: "user-event-files", Limit: maxUserStreams, Refused: s.refusedUsers},
		{Name: "event-files", Limit: maxStreams, Refused: s.refused},
	}
}

// eventStream is one open .hmcfs/events. It delivers the events from its opening on, as
// lines of JSON.
type eventStream struct {
	uid   uint32
	queue *objects.Events
	stop  context.CancelFunc
	// lines is closed when the stream has ended.
	lines chan []byte
	// turn admits one read at a time, which owns rest, the bytes for which the previous
	// reader had no room.
	turn objects.Lane
	rest []byte
}

// openEvents starts a stream of the events that the user may see.
//
// Errors: EMFILE.
func (f *filesystem) openEvents(c *fuse.Caller, out *fuse.OpenOut) fuse.Status {
	who := f.guests.callerOf(c)
	if !f.streams.enter(who.UID) {
		return fuse.Status(syscall.EMFILE)
	}
	// The process may exit before the stream ends.
	who = who.WithGroups()
	ctx, stop := context.WithCancel(background())
	s := &eventStream{
		uid: who.UID, queue: f.store.Listen(), stop: stop,
		lines: make(chan []byte, eventsAhead), turn: objects.NewLane(1),
	}
	go s.follow(ctx, who, f.log)
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH | fuse.FOPEN_STREAM
	out.Fh = f.files.put(&fileHandle{stream: s})
	return fuse.OK
}

// follow converts events to lines until the stream ends.
func (s *eventStream) follow(ctx context.Context, who objects.Caller, log *zap.Logger) {
	defer close(s.lines)
	for {
		e, err := s.queue.Next(ctx)
		if err != nil {
			return
		}
		if !e.MayRead(who) {
			continue
		}
		line, err := json.Marshal(e)
		if err != nil {
			log.Error("event could not be encoded and is skipped", zap.Uint64("seq", e.Seq), zap.Error(err))
			continue
		}
		select {
		case s.lines <- append(line, '\n'):
		case <-ctx.Done():
			return
		}
	}
}

// close ends the stream for good, and waits until follow has returned.
func (s *eventStream) close() {
	s.stop()
	s.queue.Close()
	for range s.lines { // discard the lines that are left
	}
}

// read waits for a line, and returns as many available bytes as fit; none at the stream's
// end.
//
// Errors: the context's.
func (s *eventStream) read(ctx context.Context, p []byte) (n int, err error) {
	if err = s.turn.Enter(ctx); err != nil {
		return 0, err
	}
	defer s.turn.Leave()
	if len(s.rest) == 0 {
		select {
		case s.rest = <-s.lines:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	for {
		k := copy(p[n:], s.rest)
		n, s.rest = n+k, s.rest[k:]
		if n == len(p) || len(s.rest) > 0 {
			return n, nil
		}
		select {
		case s.rest = <-s.lines:
		default:
		}
		if len(s.rest) == 0 {
			return n, nil
		}
	}
}

// endStreams ends all streams if nothing else is open, so that their readers don't keep the
// mount busy.
func (f *filesystem) endStreams() (ended bool) {
	if n := f.streams.count(); n == 0 || f.files.len() > n || f.dirs.len() > 0 {
		return false
	}
	for _, h := range f.files.all() {
		if h.stream != nil {
			h.stream.stop() // readers read the lines that are left, and then the end of the file
		}
	}
	return true
}
