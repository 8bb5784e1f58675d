package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/objects/collect"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// maxJobs is how many collectives of one session may be under way.
const maxJobs = 16

// answerLimit is how long a wait for a collective takes at most.
const answerLimit = 5 * time.Second

// turnLimit is how long a question waits for the turn of its files, before it has
// to be asked again.
const turnLimit = 500 * time.Millisecond

// collected is a collective that a session has asked for: our part of it. It is
// ended once, by whoever asks, or by the end of the session.
type collected struct {
	part *part
	// handles are those of the files, in use until the end.
	handles []*handle
	killer  bool
	// ended is closed when what was under way has ended.
	ended chan struct{}
	// begin is done once: by the first wait, or by the end in its place.
	begin sync.Once
	err   error
	// unwanted ends it when nobody has asked for it for some time. The session's mu
	// guards it.
	unwanted *time.Timer
}

// collect prepares our part of a collective. Where other collectives have its files
// for long, it has to be asked for again, which the answer says.
func (s *server) collect(ctx context.Context, g *guest, q *proto.CollectAsk) (any, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	if s.o.Part == nil {
		return nil, fmt.Errorf("collectives: %w", objects.ErrUnsupported)
	}
	t := taskFromProto(q)
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", objects.ErrInvalid, err)
	}
	// The memory is taken after that, and counts.
	if err := g.beginJob(); err != nil {
		return nil, err
	}
	defer g.begunJob()
	j := &collected{ended: make(chan struct{})}
	places, err := s.places(g, q, j)
	if err == nil {
		j.part, err = s.o.Part(ctx, t, q, places, turnLimit)
	}
	if err != nil {
		j.letGo(ctx, g)
		if errors.Is(err, errTurn) {
			return &proto.CollectAnswer{}, nil
		}
		return nil, err
	}
	if err = g.addJob(string(q.Job), j); err != nil {
		j.end(ctx, g, false) //nolint:errcheck // the failure that led here is told
		return nil, err
	}
	s.expect(g, string(q.Job), j) //nolint:contextcheck // it ends by itself, whoever asked
	return &proto.CollectAnswer{Done: true}, nil
}

// places are the files of our ranks.
func (s *server) places(g *guest, q *proto.CollectAsk, j *collected) ([]collect.Place, error) {
	var places []collect.Place
	for _, f := range q.Files {
		p := collect.Place{Rank: int(f.Rank)}
		for _, one := range []struct {
			number uint64
			access objects.Permission
			file   **objects.File
		}{{f.Source, objects.PermRead, &p.Source}, {f.Target, objects.PermWrite, &p.Target}} {
			if one.number == 0 {
				continue
			}
			h, err := g.use(one.number, one.access)
			if err != nil {
				return nil, err
			}
			*one.file = h.file
			j.handles = append(j.handles, h)
			j.killer = j.killer || !h.who.IsRoot()
		}
		places = append(places, p)
	}
	return places, nil
}

// letGo ends the use of the files.
func (j *collected) letGo(ctx context.Context, g *guest) {
	for _, h := range j.handles {
		g.done(ctx, h)
	}
	j.handles = nil
}

// run begins what is to be done.
func (j *collected) run(s *server) {
	j.begin.Do(func() {
		s.work.Go(func() {
			j.err = j.part.run()
			close(j.ended)
		})
	})
}

// end takes the results, or drops them, once nothing is under way.
func (j *collected) end(ctx context.Context, g *guest, commit bool) error {
	if !commit {
		j.part.stop()
	}
	j.begin.Do(func() {
		j.err = errors.New("it was not begun")
		close(j.ended)
	})
	select {
	case <-j.ended:
	case <-ctx.Done():
		// Whoever asked has gone, and with him who could end what is under way.
		j.part.stop()
		<-j.ended
	}
	defer j.letGo(ctx, g)
	if !commit || j.err != nil {
		j.part.drop()
		return j.err
	}
	for _, h := range j.handles {
		defer g.server.push.changing(g, h.file.Ino())()
	}
	err := j.part.commit(ctx, j.killer)
	for _, h := range j.handles {
		g.server.served(h.file.Ino(), 0)
	}
	return err
}

// collectWait begins our part, and answers when it has ended. Who does not wait only
// says that it is wanted.
func (s *server) collectWait(ctx context.Context, g *guest, q *proto.JobAsk) (any, error) {
	j, err := g.job(string(q.Job), false)
	if err != nil {
		return nil, err
	}
	if q.Wait == 0 {
		return &proto.CollectAnswer{}, nil
	}
	j.run(s)
	limit := time.NewTimer(min(time.Duration(q.Wait)*time.Millisecond, answerLimit))
	defer limit.Stop()
	select {
	case <-j.ended:
		if j.err != nil {
			return nil, j.err
		}
		out := reportToProto(j.part.report())
		out.Costs = j.part.costs
		return out, nil
	case <-limit.C:
		return &proto.CollectAnswer{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// collectEnd ends our part.
func (s *server) collectEnd(ctx context.Context, g *guest, q *proto.JobAsk) (any, error) {
	j, err := g.job(string(q.Job), true)
	if err != nil {
		return nil, err
	}
	if err = j.end(ctx, g, q.Commit); !q.Commit {
		err = nil // who drops it knows why
	}
	return nil, err
}

// beginJob makes room for a collective, until begunJob.
func (g *guest) beginJob() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.jobs) + g.beginning; n >= maxJobs {
		return fmt.Errorf("%d collectives under way: %w", n, objects.ErrBusy)
	}
	g.beginning++
	return nil
}

func (g *guest) begunJob() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.beginning--
}

// addJob notes a collective of a session.
func (g *guest) addJob(name string, j *collected) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.over:
		return fmt.Errorf("the session has ended: %w", ErrStale)
	case g.jobs[name] != nil:
		return fmt.Errorf("collective %s is there already: %w", hex.EncodeToString([]byte(name)), objects.ErrInvalid)
	case g.jobs == nil:
		g.jobs = map[string]*collected{}
	}
	g.jobs[name] = j
	return nil
}

// job finds a collective, and with take removes it: the caller ends it then.
//
// Errors: ErrStale.
func (g *guest) job(name string, take bool) (*collected, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	j := g.jobs[name]
	if j == nil {
		return nil, fmt.Errorf("collective %s is not known: %w", hex.EncodeToString([]byte(name)), ErrStale)
	}
	if take {
		delete(g.jobs, name)
	}
	g.wantedLocked(j, take)
	return j, nil
}

// sums are the checksums of blocks of a file.
func (s *server) sums(ctx context.Context, g *guest, q *proto.SumsAsk) (any, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	h, err := g.use(q.Handle, objects.PermRead)
	if err != nil {
		return nil, err
	}
	defer g.done(ctx, h)
	out := &proto.SumsAnswer{Size: h.file.Size()}
	if out.Sums, err = SumsOf(ctx, h.file, q.Block, q.From, int(q.N)); err != nil {
		return nil, err
	}
	return out, nil
}

// SumsOf are the SHA-256 sums of n blocks of a file, one behind the other; fewer
// at its end, where the last block is as long as it is.
func SumsOf(ctx context.Context, f *objects.File, block, from uint64, n int) ([]byte, error) {
	p := make([]byte, min(block, sumAtOnce))
	var all []byte
	for i := range n {
		h := sha256.New()
		got, err := sumBlock(ctx, h, f, p, (from+uint64(i))*block, block)
		if err != nil {
			return nil, err
		}
		if got == 0 {
			break
		}
		all = h.Sum(all)
	}
	return all, nil
}

// sumAtOnce is how much of a block is in memory at once: many may ask.
const sumAtOnce = 1 << 20

// sumBlock adds a block, or what there is of it, by way of p.
func sumBlock(ctx context.Context, h hash.Hash, f *objects.File, p []byte, off, block uint64) (done uint64, err error) {
	for done < block {
		// What has no memory is read without a look at the context.
		if err = ctx.Err(); err != nil {
			return done, err
		}
		want := p[:min(uint64(len(p)), block-done)]
		n, err := f.ReadAt(ctx, want, off+done)
		if err != nil && !errors.Is(err, io.EOF) {
			return done, err
		}
		_, _ = h.Write(want[:n]) // a hash takes everything
		done += uint64(n)
		if n < len(want) {
			break
		}
	}
	return done, nil
}

// taskFromProto is what a node is asked for.
func taskFromProto(q *proto.CollectAsk) collect.Task {
	return collect.Task{
		Kind: plan.Kind(q.Kind), Type: elem.Type(q.Type), Op: elem.Op(q.Op), Root: int(q.Root),
		Ranks: len(q.Of), Size: q.Size, Strict: q.Strict, Algorithm: plan.Algorithm(q.Algorithm),
	}
}

func reportToProto(r collect.Report) *proto.CollectAnswer {
	return &proto.CollectAnswer{
		Done: true, Algorithm: string(r.Algorithm), Because: r.Because, Path: r.Path, Calls: r.Calls,
		Predicted: uint64(max(0, r.Predicted)), Measured: uint64(max(0, r.Measured)),
		Sent: r.Sent, Received: r.Received, Retries: uint32(max(0, r.Retries)),
	}
}

func reportFromProto(a *proto.CollectAnswer) collect.Report {
	return collect.Report{
		Algorithm: plan.Algorithm(a.Algorithm), Because: a.Because, Path: a.Path, Calls: a.Calls,
		Predicted: time.Duration(a.Predicted), Measured: time.Duration(a.Measured),
		Sent: a.Sent, Received: a.Received, Retries: int(a.Retries),
	}
}
