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
	"github.com/hmcfs/hmcfs/objects/owner"
)

// eventsAhead is the number of lines that wait for a reader beyond what the store's
// queue holds, so that one read gets several.
const eventsAhead = 64

// maxStreams bounds the open streams, since each can hold many events
// that nobody reads. Half of them are for root alone.
// A user other than root has maxUserStreams at most, so that none takes those of
// the others.
const (
	maxStreams     = 128
	maxUserStreams = 16
)

// streams counts the open streams. The zero value has none.
type streams struct {
	mu sync.Mutex
	// +checklocks:mu
	all int
	// +checklocks:mu
	of map[uint32]int
	// refused and refusedUsers count what maxStreams and maxUserStreams have refused.
	// +checklocks:mu
	refused, refusedUsers uint64
}

// enter counts one more of a user's, if there may be one more.
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

// leave counts one of a user's less.
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

// limits lists what bounds the streams of .hmcfs/events, and what has been refused
// for it.
func (s *streams) limits() []metadata.LimitStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []metadata.LimitStatus{
		{Name: "user-event-files", Limit: maxUserStreams, Refused: s.refusedUsers},
		{Name: "event-files", Limit: maxStreams, Refused: s.refused},
	}
}

// eventStream is one open .hmcfs/events. It has what happens from its opening
// on, as lines of JSON.
type eventStream struct {
	uid   uint32
	queue *objects.Events
	stop  context.CancelFunc
	// lines is closed when the stream has ended.
	lines chan []byte
	// turn holds one token while somebody reads, who then has rest, what a
	// reader had no room for.
	turn chan struct{}
	rest []byte
}

// openEvents begins a stream of what a user may hear of.
//
// Errors: EMFILE.
func (f *filesystem) openEvents(c *fuse.Caller, out *fuse.OpenOut) fuse.Status {
	who := callerOf(c)
	if !f.streams.enter(who.UID) {
		return fuse.Status(syscall.EMFILE)
	}
	// The process need not live as long as the stream.
	who.Groups = append([]uint32{}, owner.Groups(who.PID, who.UID)...)
	ctx, stop := context.WithCancel(background())
	s := &eventStream{
		uid: who.UID, queue: f.store.Listen(), stop: stop,
		lines: make(chan []byte, eventsAhead), turn: make(chan struct{}, 1),
	}
	go s.follow(ctx, who, f.log)
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH | fuse.FOPEN_STREAM
	out.Fh = f.files.put(&fileHandle{stream: s})
	return fuse.OK
}

// follow makes lines of events until the stream ends.
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
			log.Error("event not told", zap.Uint64("seq", e.Seq), zap.Error(err))
			continue
		}
		select {
		case s.lines <- append(line, '\n'):
		case <-ctx.Done():
			return
		}
	}
}

// end makes readers read what is left, and then the end.
func (s *eventStream) end() { s.stop() }

// close ends the stream for good, and waits until nothing follows the events.
func (s *eventStream) close() {
	s.stop()
	s.queue.Close()
	for range s.lines { // nobody reads what is left
	}
}

// read waits for a line, and returns as much as is there and fits; nothing at
// the stream's end.
//
// Errors: the context's.
func (s *eventStream) read(ctx context.Context, p []byte) (n int, err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-s.turn }()
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

// endStreams ends all streams when nothing else is open, so that those who
// read them don't hold the mount.
func (f *filesystem) endStreams() (ended bool) {
	if n := f.streams.count(); n == 0 || f.files.len() > n || f.dirs.len() > 0 {
		return false
	}
	for _, h := range f.files.all() {
		if h.stream != nil {
			h.stream.end()
		}
	}
	return true
}
