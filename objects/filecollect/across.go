package filecollect

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// FileRank is a rank of a collective: its files, which remain the caller's and must be on the
// same node. The zero End means no file.
type FileRank struct {
	Source, Target cluster.End
}

// node returns the node that has the files; nil means this one.
func (r FileRank) node() (*cluster.Node, error) {
	var n *cluster.Node
	for i, e := range []cluster.End{r.Source, r.Target} {
		if e.Local == nil && e.Remote == nil {
			continue
		}
		var its *cluster.Node
		if e.Remote != nil {
			its = e.Remote.Node()
		}
		if i == 1 && (r.Source.Local != nil || r.Source.Remote != nil) && its != n {
			return nil, fmt.Errorf("source and target are on different nodes: %w", objects.ErrInvalid)
		}
		n = its
	}
	return n, nil
}

// runAcross runs a collective that involves files of other nodes.
func (c *Collector) runAcross(ctx context.Context, t Task, ranks []FileRank, killPriv bool) (Report, error) {
	k, err := c.newCollection(t, ranks, killPriv)
	if err != nil {
		return Report{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err = k.prepare(ctx); err == nil {
		err = k.each(ctx, cancel, func(ctx context.Context, p participant) error { return p.work(ctx) })
	}
	calm := context.WithoutCancel(ctx)
	if err != nil {
		c.measured.put(k.ask, nil, time.Now()) // the links may have changed
		_ = k.each(calm, func() {}, func(ctx context.Context, p participant) error { p.drop(ctx); return nil })
		return Report{}, err
	}
	if len(k.participants) > 1 {
		c.measured.put(k.ask, k.participants[0].costs(), time.Now())
	}
	err = k.each(calm, func() {}, func(ctx context.Context, p participant) error { return p.commit(ctx) })
	return k.participants[0].report(), err
}

// collection is a collective that this node has initiated.
type collection struct {
	c            *Collector
	participants []participant
	// order has the indices of the participants, ordered by the names of their nodes.
	order []int
	ask   *proto.CollectAsk
}

// participant is a node that takes part: this one, or another.
type participant interface {
	prepare(ctx context.Context) error
	// work makes the results, and returns once they are complete.
	work(ctx context.Context) error
	commit(ctx context.Context) error
	// drop ends what was prepared, or is in progress.
	drop(ctx context.Context)
	report() Report
	// costs returns the costs that the nodes have measured, or were given.
	costs() []byte
}

// prepare prepares one party after the other, in the order of the nodes' names: so two
// collectives that use the same files of several nodes cannot deadlock.
func (k *collection) prepare(ctx context.Context) error {
	for _, i := range k.order {
		if err := k.c.contained(func() error { return k.participants[i].prepare(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// newCollection groups the ranks by node, in order of first appearance.
func (c *Collector) newCollection(t Task, ranks []FileRank, killPriv bool) (*collection, error) {
	t.Ranks = len(ranks)
	if err := t.Validate(); err != nil {
		return nil, err
	}
	ask := proto.CollectAsk{
		Job: make([]byte, proto.JobSize), Kind: uint32(t.Kind), Type: uint32(t.Type), Op: uint32(t.Op), Root: uint32(t.Root),
		Size: t.Size, Strict: t.Strict, Algorithm: string(t.Algorithm),
	}
	_, _ = rand.Read(ask.Job) // never fails
	var nodes []*cluster.Node
	for i, r := range ranks {
		n, err := r.node()
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", i, err)
		}
		at := slices.Index(nodes, n)
		if at < 0 {
			at, nodes = len(nodes), append(nodes, n)
			record := c.cluster.Self()
			if n != nil {
				record = n.Record()
			}
			ask.Nodes, ask.Epochs = append(ask.Nodes, string(record.Name)), append(ask.Epochs, uint64(record.Epoch))
		}
		ask.Of = append(ask.Of, uint32(at))
	}
	ask.Costs = c.measured.get(&ask, time.Now())
	k := &collection{c: c, ask: &ask}
	for i := range nodes {
		k.order = append(k.order, i)
	}
	slices.SortFunc(k.order, func(a, b int) int { return strings.Compare(ask.Nodes[a], ask.Nodes[b]) })
	for i, n := range nodes {
		mine := ask
		mine.Me = uint32(i)
		if n == nil {
			k.participants = append(k.participants, &localParticipant{c: c, task: t, ask: &mine, ranks: ranks, killPriv: killPriv})
		} else {
			k.participants = append(k.participants, &remoteParticipant{c: c, n: n, ask: mine, ranks: ranks})
		}
	}
	return k, nil
}

// each calls do for all participants concurrently. The first failure cancels it for the others;
// errors that are only due to that are left out.
func (k *collection) each(ctx context.Context, cancel context.CancelFunc, do func(context.Context, participant) error) error {
	errs := make([]error, len(k.participants))
	var all sync.WaitGroup
	for i, p := range k.participants {
		all.Go(func() {
			if errs[i] = k.c.contained(func() error { return do(ctx, p) }); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	told := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, context.Canceled) })
	return cmp.Or(errors.Join(told...), errors.Join(errs...))
}

// localParticipant is this node as a party.
type localParticipant struct {
	c        *Collector
	task     Task
	ask      *proto.CollectAsk
	ranks    []FileRank
	killPriv bool
	part     *part
}

func (p *localParticipant) prepare(ctx context.Context) (err error) {
	var places []Place
	for rank, node := range p.ask.Of {
		if node == p.ask.Me {
			r := p.ranks[rank]
			places = append(places, Place{Rank: rank, Source: r.Source.Local, Target: r.Target.Local})
		}
	}
	p.part, err = p.c.newPart(ctx, p.task, p.ask, places, 0)
	return err
}

func (p *localParticipant) work(ctx context.Context) error {
	defer context.AfterFunc(ctx, p.part.stop)()
	return p.part.run()
}

func (p *localParticipant) commit(ctx context.Context) error { return p.part.commit(ctx, p.killPriv) }

func (p *localParticipant) drop(context.Context) {
	if p.part != nil {
		p.part.drop()
	}
}

func (p *localParticipant) report() Report { return p.part.report() }

func (p *localParticipant) costs() []byte { return p.part.costs }

// remoteParticipant is another node as a party.
type remoteParticipant struct {
	c     *Collector
	n     *cluster.Node
	ask   proto.CollectAsk
	ranks []FileRank
	// in is the session in which it was prepared.
	in   cluster.Session
	last proto.CollectAnswer
	// enough ends keep; nil before keep was called.
	enough func()
}

// handles determines the handles of the node's ranks, which must belong to one session.
func (p *remoteParticipant) handles(ctx context.Context) error {
	p.ask.Files, p.in = nil, cluster.Session{}
	for rank, node := range p.ask.Of {
		if node != p.ask.Me {
			continue
		}
		f := proto.CollectFile{Rank: uint32(rank)}
		for _, one := range []struct {
			file   *cluster.File
			handle *uint64
		}{{p.ranks[rank].Source.Remote, &f.Source}, {p.ranks[rank].Target.Remote, &f.Target}} {
			if one.file == nil {
				continue
			}
			s, handle, err := one.file.Session(ctx)
			if err != nil {
				return err
			}
			if p.in != (cluster.Session{}) && p.in != s {
				return fmt.Errorf("node %s: the session ended in the meantime: %w", p.n.Record().Name, cluster.ErrUnreachable)
			}
			p.in, *one.handle = s, handle
		}
		p.ask.Files = append(p.ask.Files, f)
	}
	return nil
}

func (p *remoteParticipant) prepare(ctx context.Context) error {
	if err := p.handles(ctx); err != nil {
		return err
	}
	for {
		var turn proto.CollectAnswer
		if err := p.in.Ask(ctx, proto.MethodCollect, &p.ask, &turn); err != nil {
			return err
		}
		if turn.Done {
			p.keep(ctx)
			return nil
		}
	}
}

func (p *remoteParticipant) work(ctx context.Context) error {
	// Half of the timeout of a request, so that time is left for the answer.
	wait := uint32(max(1, min(p.c.o.Timeout/2, answerLimit)/time.Millisecond))
	for {
		if err := p.in.Ask(ctx, proto.MethodCollectWait, &proto.JobAsk{Job: p.ask.Job, Wait: wait}, &p.last); err != nil {
			return err
		}
		if a := &p.last; !cluster.IsShown(a.Algorithm) || !cluster.IsShown(a.Because) || !cluster.IsShown(a.Path) {
			return fmt.Errorf("node %s sent a report with invalid characters: %w", p.n.Record().Name, proto.ErrBody)
		}
		if p.last.Done {
			return nil
		}
	}
}

func (p *remoteParticipant) commit(ctx context.Context) error {
	p.enough()
	for rank, node := range p.ask.Of {
		if f := p.ranks[rank].Target.Remote; node == p.ask.Me && f != nil {
			defer f.Changing()()
		}
	}
	return p.in.Ask(ctx, proto.MethodCollectEnd, &proto.JobAsk{Job: p.ask.Job, Commit: true}, nil)
}

// drop notifies the node; if that fails, the end of the session has the same effect.
func (p *remoteParticipant) drop(ctx context.Context) {
	if p.enough != nil {
		p.enough()
	}
	if p.in == (cluster.Session{}) || p.in.Ended() {
		return
	}
	_ = p.in.Ask(ctx, proto.MethodCollectEnd, &proto.JobAsk{Job: p.ask.Job}, nil) // it is over, whatever the answer
}

func (p *remoteParticipant) report() Report { return reportFromProto(&p.last) }

func (p *remoteParticipant) costs() []byte { return p.last.Costs }

// keep periodically confirms that the part is needed, until enough is called: before the part
// starts, other collectives may hold the next node's files for long, and after it has ended,
// other nodes may still be working on theirs.
func (p *remoteParticipant) keep(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	gone := make(chan struct{})
	p.enough = func() {
		cancel()
		<-gone
	}
	go func() {
		defer close(gone)
		t := time.NewTicker(p.c.unwantedTimeout() / 8)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				_ = p.in.Ask(ctx, proto.MethodCollectWait, &proto.JobAsk{Job: p.ask.Job}, &proto.CollectAnswer{}) // if it fails, so do the requests that work waits for
			case <-ctx.Done():
				return
			}
		}
	}()
}
