package admin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// The limits of the sessions of a user.
const (
	// maxSessions bounds the sessions of a user other than root and the owner.
	maxSessions = 32
	// maxFiles bounds the descriptors, or pieces of memory that may each have one, that a
	// user has registered in all sessions.
	maxFiles = 4096
	// maxListeners bounds the event streams of a user.
	maxListeners = 16
	// callMemory bounds the memory, in bytes, that the calls of one other user use: the
	// body of one call may have an eighth of it, which is enough for hetero.MaxKeys keys of
	// maximum length. trustedMemory is the limit of root and of the owner.
	callMemory    = 72 << 20
	trustedMemory = 1 << 30
)

var (
	// errNoSession is returned for a session that does not exist, and for one of another
	// user, so that a client cannot tell the two cases apart.
	errNoSession = errors.New("this user has no such session")
	errFiles     = fmt.Errorf("%w: too many pieces of memory of this user, at most %d", hetero.ErrNoMemory, maxFiles)
	errListeners = fmt.Errorf("%w: too many streams of events of this user, at most %d", hetero.ErrBusy, maxListeners)
	errSessions  = fmt.Errorf("%w: too many sessions of this user", hetero.ErrBusy)
)

// session is one client of heterogeneous objects. It lives as long as the connection that
// holds it.
type session struct {
	id     string
	uid    int
	pid    int
	begun  time.Time
	client hetero.Client
	// lasting is set if a later daemon continues the session.
	lasting bool
	// memory is the client's; nil if this process can't access it.
	memory memories
	// files are nil unless the session has calls in frames.
	files *openFiles
	// stop ends the requests of frames.
	stop context.CancelFunc
	user *user
	// end is closed when the server ends.
	end chan struct{}
	// calls are the calls in progress, and under their connections, guarded by sessions.mu.
	calls sync.WaitGroup
	under map[*conn]struct{}
	// abandon ends the contexts of calls in frames; guarded by sessions.mu.
	abandon context.CancelFunc
}

// user is shared by the sessions and the requests about files of one user.
type user struct {
	uid int
	// uses counts the sessions and requests; guarded by sessions.mu, as are the next two.
	uses     int
	sessions int
	files    int
	// memory is reserved by calls and requests; most is its size, in bytes.
	memory *semaphore.Weighted
	most   int64
}

// reserve reserves memory, in bytes, for a call or a request. A wait would delay cancellations, and the end of the session.
//
// Errors: hetero.ErrBusy.
func (u *user) reserve(n int64) error {
	if !u.memory.TryAcquire(n) {
		return fmt.Errorf("%w: the calls of this user use too much memory", hetero.ErrBusy)
	}
	return nil
}

// sessions are the open sessions.
type sessions struct {
	// refusals counts refused requests; nil counts nothing. Immutable, as are the next two.
	refusals *Refusals
	// started is the time at which they begin, run begins the names of this daemon's sessions, and until is the end of the time in which those of the
	// daemon before come back.
	started time.Time
	run     string
	until   time.Time

	mu sync.Mutex
	// ended is set once no more sessions are opened.
	// +checklocks:mu
	ended bool
	// +checklocks:mu
	open map[string]*session
	// +checklocks:mu
	users map[int]*user
	// continued has the names of sessions that came back, and comers how many of each user.
	// +checklocks:mu
	continued map[string]struct{}
	// +checklocks:mu
	comers map[int]int
	// listeners counts the event streams of users other than root and the owner.
	// +checklocks:mu
	listeners map[int]int
	// held counts the connections that hold a session.
	held sync.WaitGroup
}

func newSessions(o Options) *sessions {
	s := &sessions{
		refusals: o.Refusals, open: map[string]*session{}, users: map[int]*user{}, listeners: map[int]int{},
		continued: map[string]struct{}{}, comers: map[int]int{},
	}
	s.started, s.run = time.Now(), secret(runSize)
	if o.Continued {
		s.until = s.started.Add(o.Continues)
	}
	return s
}

const (
	// runSize and restSize are the sizes, in bytes, of the parts of a session's name: what those of one daemon have in common, and
	// the rest.
	runSize, restSize = 4, 12
	// maxTrustedContinued bounds the sessions of the daemon before that come back to this one, of root and of the owner, each, and
	// maxForeignContinued those of another user. A name counts from the first request with it: whether the daemon before
	// had given it is not known. maxContinued bounds those of all users, and is more than root and the owner can have.
	maxTrustedContinued = 1 << 16
	maxForeignContinued = 4 * maxSessions
	maxContinued        = 1 << 18
)

// secret returns n random bytes, as text.
func secret(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// nameLocked returns the name of a new session, or checks that of one that is to be continued.
//
// Errors: errNoSession, for a name of this daemon, or one that is continued already, as it has ended then; and beyond a bound.
//
// +checklocks:s.mu
func (s *sessions) nameLocked(c *conn, before string) (string, error) {
	if before == "" {
		return s.run + secret(restSize), nil
	}
	most := maxForeignContinued
	if c.trusted {
		most = maxTrustedContinued
	}
	text, err := hex.DecodeString(before)
	_, twice := s.continued[before]
	if err != nil || len(text) != runSize+restSize || strings.HasPrefix(before, s.run) || twice ||
		s.comers[c.peer.UID] >= most || len(s.continued) >= maxContinued || time.Now().After(s.until) {
		return "", errNoSession
	}
	s.continued[before] = struct{}{}
	s.comers[c.peer.UID]++
	return before, nil
}

// begin reserves a session of a user. The caller calls leave at the end.
// before names one of the daemon before, which it continues; empty for a new one.
func (s *sessions) begin(c *conn, before string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, errEnding
	}
	u := s.useLocked(c)
	if !c.trusted && u.sessions >= maxSessions {
		s.unuseLocked(u)
		s.refusals.add(boundSessions)
		return nil, errSessions
	}
	name, err := s.nameLocked(c, before)
	if err != nil {
		s.unuseLocked(u)
		return nil, err
	}
	u.sessions++
	s.held.Add(1)
	return &session{
		id: name, uid: c.peer.UID, pid: c.peer.PID, begun: time.Now(), user: u,
		end: make(chan struct{}), under: map[*conn]struct{}{}, abandon: func() {}, stop: func() {},
	}, nil
}

// useLocked returns the user of a client. The caller calls unuseLocked at the end.
//
// +checklocks:s.mu
func (s *sessions) useLocked(c *conn) *user {
	u := s.users[c.peer.UID]
	if u == nil {
		u = &user{uid: c.peer.UID, most: callMemory}
		if c.trusted {
			u.most = trustedMemory
		}
		u.memory = semaphore.NewWeighted(u.most)
		s.users[u.uid] = u
	}
	u.uses++
	return u
}

// +checklocks:s.mu
func (s *sessions) unuseLocked(u *user) {
	if u.uses--; u.uses == 0 {
		delete(s.users, u.uid)
	}
}

// reserve reserves memory, in bytes, of a user without a session.
//
// Errors: hetero.ErrBusy.
func (s *sessions) reserve(c *conn, n int64) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.useLocked(c)
	if err := u.reserve(n); err != nil {
		s.unuseLocked(u)
		s.refusals.add(boundCallBytes)
		return nil, err
	}
	return func() {
		u.memory.Release(n)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unuseLocked(u)
	}, nil
}

// start makes a session available to calls, unless the server has ended in the meantime.
func (s *sessions) start(one *session, client hetero.Client, trusted bool) error {
	one.memory, _ = client.(memories)
	if one.client = client; !trusted {
		one.client = &metered{Client: client, sessions: s, user: one.user, files: map[hetero.MemoryID]int{}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnding
	}
	s.open[one.id] = one
	return nil
}

// close removes a session, so that no new call of it begins.
func (s *sessions) close(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, one.id)
}

// leave releases what begin reserved. The memory of the session's user must not be used
// afterwards.
func (s *sessions) leave(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.abandon()
	one.user.sessions--
	s.unuseLocked(one.user)
	s.held.Done()
}

// enter begins a call of a session of the client at the other end. The caller calls exit at
// the end.
func (s *sessions) enter(c *conn, id string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.open[id]
	if one == nil || one.uid != c.peer.UID {
		if s.ended {
			return nil, errEnding
		}
		return nil, errNoSession
	}
	one.calls.Add(1)
	one.under[c] = struct{}{}
	return one, nil
}

// track makes cut close the connection that holds a session, too, and end the contexts of the
// calls in its frames.
func (s *sessions) track(c *conn, one *session, abandon context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.under[c], one.abandon = struct{}{}, abandon
}

// exit ends a call.
func (s *sessions) exit(c *conn, one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(one.under, c)
	one.calls.Done()
}

// cut ends what is left of a session's calls, and closes their connections.
func (s *sessions) cut(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.abandon()
	for c := range one.under {
		_ = c.Close() // the next write on it fails
	}
}

func (s *sessions) count(uid int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.users[uid]; u != nil {
		return u.sessions
	}
	return 0
}

// stop ends all sessions, and returns when they have ended, or with an error when the
// context ends first.
func (s *sessions) stop(ctx context.Context) error {
	s.mu.Lock()
	first := !s.ended
	s.ended = true
	for _, one := range s.open {
		if first {
			close(one.end)
		}
	}
	s.mu.Unlock()
	if err := awaitGroup(ctx, &s.held); err != nil {
		return fmt.Errorf("wait for the end of sessions: %w", err)
	}
	return nil
}

// awaitGroup waits for a group for as long as the context lasts.
func awaitGroup(ctx context.Context, g *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		g.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
