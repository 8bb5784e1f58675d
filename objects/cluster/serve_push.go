package cluster

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// topic is a subject of notices to sessions, and of those from other nodes: an inode's attributes
// and content, or a directory's names.
type topic struct {
	ino   metadata.Ino
	names bool
}

func topicOf(ino metadata.Ino) topic { return topic{ino: ino} }

func namesOf(dir metadata.Ino) topic { return topic{ino: dir, names: true} }

const (
	// pushShards is the number of shards with separate locks. A power of two.
	pushShards = 64
	// pushMarks is the number of counters that record when topics last changed. A power of
	// two.
	pushMarks = 4096
)

// pusher tracks the answers that each session may have cached, and notifies the session when
// they change.
//
// A session is registered for a topic for one to two times the period for which it may cache
// an answer, and unregistered once it has been notified: a new request registers it again.
// While it has a file open it is notified of every change of that file.
//
// INVARIANT (no change is missed): to answer, take a mark, read, and then register the session
// with remember. A change after the mark is either detected by remember, which reports it, or
// finds the session registered.
type pusher struct {
	ttl time.Duration
	// count grows with each change. marks has its value at the last change of the topics that
	// share a slot.
	count atomic.Uint64
	marks [pushMarks]atomic.Uint64

	shards [pushShards]pushShard

	mu sync.Mutex
	// aging is true while the timer runs.
	// +checklocks:mu
	aging bool
	// +checklocks:mu
	timer *time.Timer
	// +checklocks:mu
	stopped bool
}

type pushShard struct {
	mu sync.Mutex
	// young and old are the sessions registered for a topic in the present period, and in the
	// previous one.
	// +checklocks:mu
	young map[topic][]*servedSession
	// +checklocks:mu
	old map[topic][]*servedSession
	// held counts, by session, the handles of files.
	// +checklocks:mu
	held map[metadata.Ino]map[*servedSession]int
	// busy has the sessions that are changing a file, and so know of the change.
	// +checklocks:mu
	busy map[metadata.Ino]map[*servedSession]int
}

// newPusher returns a pusher for answers that may be cached for ttl, and are in transit for
// some time in addition.
func newPusher(ttl time.Duration) *pusher { return &pusher{ttl: ttl + ttl/2} }

func (t topic) place() uint64 {
	n := uint64(t.ino) << 1
	if t.names {
		n |= 1
	}
	return n
}

func (p *pusher) shard(t topic) *pushShard { return &p.shards[uint64(t.ino)%pushShards] }

// mark returns the present position in the order of changes.
func (p *pusher) mark() uint64 { return p.count.Load() }

// remember registers a session for notice of the next change of a topic, and reports whether
// none has, as far as can be known, happened since the mark.
func (p *pusher) remember(g *servedSession, t topic, mark uint64) bool {
	sh := p.shard(t)
	sh.mu.Lock()
	if !slices.Contains(sh.young[t], g) {
		if sh.young == nil {
			sh.young = map[topic][]*servedSession{}
		}
		sh.young[t] = append(sh.young[t], g)
	}
	sh.mu.Unlock()
	p.startAging()
	return p.marks[t.place()%pushMarks].Load() <= mark
}

// hold registers a session for every change of a file, until unhold.
func (p *pusher) hold(g *servedSession, ino metadata.Ino) {
	sh := p.shard(topicOf(ino))
	sh.mu.Lock()
	defer sh.mu.Unlock()
	count(&sh.held, ino, g, 1)
}

func (p *pusher) unhold(g *servedSession, ino metadata.Ino) {
	sh := p.shard(topicOf(ino))
	sh.mu.Lock()
	defer sh.mu.Unlock()
	count(&sh.held, ino, g, -1)
}

// changing marks a session as changing a file until done is called: it is not notified of that
// change, since its answer reports it.
func (p *pusher) changing(g *servedSession, ino metadata.Ino) (done func()) {
	sh := p.shard(topicOf(ino))
	sh.mu.Lock()
	count(&sh.busy, ino, g, 1)
	sh.mu.Unlock()
	return func() {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		count(&sh.busy, ino, g, -1)
	}
}

// count adds n to the number of times that a session is recorded for a file. The caller holds
// the lock.
func count(m *map[metadata.Ino]map[*servedSession]int, ino metadata.Ino, g *servedSession, n int) {
	if *m == nil {
		*m = map[metadata.Ino]map[*servedSession]int{}
	}
	of := (*m)[ino]
	if of == nil {
		of = map[*servedSession]int{}
		(*m)[ino] = of
	}
	if of[g] += n; of[g] == 0 {
		delete(of, g)
	}
	if len(of) == 0 {
		delete(*m, ino)
	}
}

// notice is called by the store for every change. It does not block.
func (p *pusher) notice(n objects.Notice) {
	if n.Ino != 0 {
		p.changed(topicOf(n.Ino))
	}
	if n.Dir != 0 {
		p.changed(namesOf(n.Dir))
	}
}

func (p *pusher) changed(t topic) {
	mark := &p.marks[t.place()%pushMarks]
	// Of two concurrent changes, the higher number is kept.
	for now := p.count.Add(1); ; {
		was := mark.Load()
		if was >= now || mark.CompareAndSwap(was, now) {
			break
		}
	}
	for _, g := range p.shard(t).listeners(t) {
		g.invalid(t)
	}
}

// listeners returns the sessions to be notified of a change, and unregisters those that are
// notified only once.
func (sh *pushShard) listeners(t topic) []*servedSession {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	young, old := sh.young[t], sh.old[t]
	var held, busy map[*servedSession]int
	if !t.names {
		held, busy = sh.held[t.ino], sh.busy[t.ino]
	}
	if len(young)+len(old)+len(held) == 0 {
		return nil
	}
	delete(sh.young, t)
	delete(sh.old, t)
	told := append(young, old...)
	for g := range held {
		told = append(told, g)
	}
	if len(busy) == 0 {
		return told
	}
	return slices.DeleteFunc(told, func(g *servedSession) bool { return busy[g] > 0 })
}

// startAging ensures that registrations expire in time.
func (p *pusher) startAging() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aging || p.stopped {
		return
	}
	p.aging = true
	p.timer = time.AfterFunc(p.ttl, p.age)
}

// age starts the next period, and runs again while any registrations are left.
func (p *pusher) age() {
	left := 0
	for i := range p.shards {
		sh := &p.shards[i]
		sh.mu.Lock()
		sh.young, sh.old = nil, sh.young
		left += len(sh.old)
		sh.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aging = left > 0 && !p.stopped
	if p.aging {
		p.timer.Reset(p.ttl)
	}
}

func (p *pusher) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

const (
	// maxPending bounds the topics pending for a session; beyond it the session is told to
	// drop everything instead.
	maxPending = 16384
	// maxTold bounds the topics of one notice: it must fit rpc.MaxQuestion.
	maxTold = 4096
	// retellAfter is the pause before a notice that a session did not accept is sent again.
	retellAfter = 2 * time.Millisecond
)

// pending holds the topics of which a session has not been notified yet.
type pending struct {
	topics map[topic]struct{}
	// all replaces the topics: everything has changed.
	all bool
}

// invalid schedules a notice to the session that a topic has changed. It does not block.
func (g *servedSession) invalid(t topic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || g.pending.all {
		return
	}
	if g.pending.topics == nil {
		g.pending.topics = map[topic]struct{}{}
	}
	g.pending.topics[t] = struct{}{}
	if len(g.pending.topics) > maxPending {
		g.pending = pending{all: true}
	}
	if !g.pushing {
		g.pushing = true
		g.server.work.Go(g.tell)
	}
}

// tell sends notices until none are pending.
func (g *servedSession) tell() {
	s := g.server
	for {
		news, ok := g.news()
		if !ok {
			return
		}
		body, err := proto.Encode(&news)
		if err == nil {
			err = g.notify(body)
		}
		if err != nil {
			// The session has ended, or is about to, and with it the peer's cache.
			s.o.Log.Debug("could not send an invalidation", zap.Stringer("rank", g.from.Rank), zap.Error(err))
			continue
		}
		s.o.Count.invalidationsOut.Add(1)
	}
}

// news returns the next notice; false if none is pending.
func (g *servedSession) news() (proto.Invalid, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var news proto.Invalid
	if g.over || !g.pending.all && len(g.pending.topics) == 0 {
		g.pushing, g.pending = false, pending{}
		return news, false
	}
	g.pending.all = false // a notice without numbers means everything
	for t := range g.pending.topics {
		if len(news.Inos)+len(news.Names) == maxTold {
			break
		}
		delete(g.pending.topics, t)
		if t.names {
			news.Names = append(news.Names, uint64(t.ino))
		} else {
			news.Inos = append(news.Inos, uint64(t.ino))
		}
	}
	return news, true
}

// notify sends a notice as soon as the session accepts it.
func (g *servedSession) notify(body []byte) error {
	for {
		sent, err := g.server.o.Notify(g.from.Rank, proto.NoticeInvalid, body)
		if err != nil || sent {
			return err
		}
		select {
		case <-time.After(retellAfter):
		case <-g.gone:
			return nil
		}
	}
}
