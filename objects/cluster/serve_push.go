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

// topic is a subject of notices to sessions: an inode's attributes and
// content, or a directory's names.
type topic struct {
	ino   metadata.Ino
	names bool
}

func topicOf(ino metadata.Ino) topic { return topic{ino: ino} }

func namesOf(dir metadata.Ino) topic { return topic{ino: dir, names: true} }

const (
	// pushShards spreads what sessions remember over locks. A power of two.
	pushShards = 64
	// pushMarks is the number of counters that say when topics changed last. A power of
	// two.
	pushMarks = 4096
)

// pusher knows what each session may have remembered of what it was told, and
// tells it when that changes.
//
// A session is remembered for a topic for one to two times the time for which
// it may remember an answer itself, and forgotten when it has been told: who
// asks again is remembered again. As long as it has a file open it is told of
// every change of that.
//
// INVARIANT (no change is missed): who answers takes a mark, reads, and then
// has the session remembered. A change after the mark is either seen by
// remember, which says so, or finds the session remembered.
type pusher struct {
	ttl time.Duration
	// count grows with each change. marks has its value at the last change of
	// the topics that share a place.
	count atomic.Uint64
	marks [pushMarks]atomic.Uint64

	shards [pushShards]pushShard

	mu sync.Mutex
	// aging says that the timer runs.
	// +checklocks:mu
	aging bool
	// +checklocks:mu
	timer *time.Timer
	// +checklocks:mu
	stopped bool
}

type pushShard struct {
	mu sync.Mutex
	// young and old are who was told of a topic, in the present stretch of
	// time, and in the last.
	// +checklocks:mu
	young map[topic][]*servedSession
	// +checklocks:mu
	old map[topic][]*servedSession
	// held counts, by session, the handles of files.
	// +checklocks:mu
	held map[metadata.Ino]map[*servedSession]int
	// busy are the sessions that change a file just now, and know that.
	// +checklocks:mu
	busy map[metadata.Ino]map[*servedSession]int
}

// newPusher makes a pusher for answers that may be remembered for ttl, and are on
// their way for some time too.
func newPusher(ttl time.Duration) *pusher { return &pusher{ttl: ttl + ttl/2} }

func (t topic) place() uint64 {
	n := uint64(t.ino) << 1
	if t.names {
		n |= 1
	}
	return n
}

func (p *pusher) shard(t topic) *pushShard { return &p.shards[uint64(t.ino)%pushShards] }

// mark is a point in the order of changes.
func (p *pusher) mark() uint64 { return p.count.Load() }

// remember has a session told of the next change of a topic, and says whether
// none has happened since the mark, as far as can be known.
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

// hold has a session told of every change of a file, until unhold.
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

// changing says that a session changes a file until the result is called: it is
// not told of that, since its answer will say it.
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

// count adds to how often a session is noted for a file. The caller has the
// lock.
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

// notice is told by the store of every change. It does not wait.
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
	// Two changes at once: the higher number stays.
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

// listeners returns the sessions that are to be told of a change, and forgets those that are told only
// once.
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

// startAging sees to it that what is remembered is forgotten in time.
func (p *pusher) startAging() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aging || p.stopped {
		return
	}
	p.aging = true
	p.timer = time.AfterFunc(p.ttl, p.age)
}

// age begins the next stretch of time, and goes on while anything is
// remembered.
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
	// maxPending bounds the topics that wait for a session before it is told to
	// forget everything instead.
	maxPending = 16384
	// maxTold bounds the topics of one notice: it must fit rpc.MaxQuestion.
	maxTold = 4096
	// retellAfter is the time that a session waits which does not take a notice.
	retellAfter = 2 * time.Millisecond
)

// pending has the topics that a session has not been told yet.
type pending struct {
	topics map[topic]struct{}
	// all stands for everything.
	all bool
}

// invalid has the session told that a topic has changed. It does not wait.
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

// tell sends what is pending until nothing is.
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
			// The session has ended, or is about to, and with it what the peer
			// remembers.
			s.o.Log.Debug("invalidation not sent", zap.Stringer("rank", g.from.Rank), zap.Error(err))
			continue
		}
		s.o.Count.invalidationsOut.Add(1)
	}
}

// news takes what is to be told next; false when nothing is.
func (g *servedSession) news() (proto.Invalid, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var news proto.Invalid
	if g.over || !g.pending.all && len(g.pending.topics) == 0 {
		g.pushing, g.pending = false, pending{}
		return news, false
	}
	g.pending.all = false // no numbers at all are all
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

// notify sends a notice, as soon as the session takes it.
func (g *servedSession) notify(body []byte) error {
	for {
		sent, err := g.server.o.Notify(g.from.Rank, proto.NoticeInvalid, body)
		if err != nil || sent {
			return err
		}
		wait := time.NewTimer(retellAfter)
		select {
		case <-wait.C:
		case <-g.gone:
			wait.Stop()
			return nil
		}
	}
}
