package cluster

import (
	"context"
	"encoding/hex"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// unwantedAfter is how long a node keeps its part of a collective that nobody asks
// for: it holds memory, and others wait for the files. Who has asked for it says
// that it is wanted several times in that time.
const unwantedAfter = 2 * time.Minute

func (s *server) patience() time.Duration { return time.Duration(s.unwantedAfter.Load()) }

// keep says now and then that the part is wanted, until enough: before it is begun
// others may have the files of the next node for long, and after it has ended other
// nodes may still be at theirs.
func (p *otherParty) keep(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	gone := make(chan struct{})
	p.enough = func() {
		cancel()
		<-gone
	}
	q := question{method: proto.MethodCollectWait, in: &proto.JobAsk{Job: p.ask.Job}, out: &proto.CollectAnswer{}}
	go func() {
		defer close(gone)
		t := time.NewTicker(p.n.c.server.patience() / 8)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				_ = p.askOnce(ctx, q) // who works with it is told too
			case <-ctx.Done():
				return
			}
		}
	}()
}

// expect has a part dropped that nobody asks for any more. The session's end, and
// whoever takes it, come first.
func (s *server) expect(g *guest, name string, j *collected) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.jobs[name] != j {
		return
	}
	j.unwanted = time.AfterFunc(s.patience(), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.over || g.jobs[name] != j {
			return
		}
		delete(g.jobs, name)
		// The session has not ended, so close does not wait yet.
		s.work.Go(func() {
			s.o.Log.Warn("a collective that nobody asks for is dropped", zap.String("collective", hex.EncodeToString([]byte(name))),
				zap.Duration("after", s.patience()))
			_ = j.end(context.Background(), g, false) // nobody is there to be told
		})
	})
}

// wantedLocked says that somebody asks for a part, or takes it.
//
// +checklocks:g.mu
func (g *guest) wantedLocked(j *collected, taken bool) {
	switch {
	case j.unwanted == nil:
	case taken:
		j.unwanted.Stop()
	default:
		j.unwanted.Reset(g.server.patience())
	}
}
