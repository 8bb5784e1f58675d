package cluster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/objects/collect"
)

// CollectRank is a rank of a collective: its files, which stay the caller's and
// are both of one node. The zero End is none.
type CollectRank struct {
	Source, Target End
}

// node is whose the files are; nil for ours.
func (r CollectRank) node() (*Node, error) {
	var n *Node
	for i, e := range []End{r.Source, r.Target} {
		if e.Local == nil && e.Remote == nil {
			continue
		}
		var its *Node
		if e.Remote != nil {
			its = e.Remote.n
		}
		if i == 1 && (r.Source.Local != nil || r.Source.Remote != nil) && its != n {
			return nil, fmt.Errorf("source and target are on two nodes: %w", objects.ErrInvalid)
		}
		n = its
	}
	return n, nil
}

// Collect does a collective whose ranks are files of any nodes. Nothing is
// changed before all results are whole.
//
// Errors: collect.ErrTask, and for files of ours a collect.RankError; those of
// the nodes, which name themselves; ErrUnreachable where one does not answer.
func (c *Cluster) Collect(ctx context.Context, t collect.Task, ranks []CollectRank, killPriv bool) (collect.Report, error) {
	k, err := c.newCollection(t, ranks, killPriv)
	if err != nil {
		return collect.Report{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err = k.prepare(ctx); err == nil {
		err = k.each(ctx, cancel, func(ctx context.Context, p party) error { return p.work(ctx) })
	}
	calm := context.WithoutCancel(ctx)
	if err != nil {
		c.measured.put(k.ask, nil, time.Now()) // the links may be others now
		_ = k.each(calm, func() {}, func(ctx context.Context, p party) error { p.drop(ctx); return nil })
		return collect.Report{}, err
	}
	if len(k.parties) > 1 {
		c.measured.put(k.ask, k.parties[0].costs(), time.Now())
	}
	err = k.each(calm, func() {}, func(ctx context.Context, p party) error { return p.commit(ctx) })
	return k.parties[0].report(), err
}

// collection is a collective that we have others take part in.
type collection struct {
	c       *Cluster
	parties []party
	// order is that of their names.
	order []int
	ask   *proto.CollectAsk
}

// party is a node that takes part: this one, or another.
type party interface {
	prepare(ctx context.Context) error
	// work makes the results, and returns when they are there.
	work(ctx context.Context) error
	commit(ctx context.Context) error
	// drop ends what was prepared, or is under way.
	drop(ctx context.Context)
	report() collect.Report
	// costs are what the nodes have measured, or were given.
	costs() []byte
}

// prepare prepares one party after the other, in the order of the nodes' names: two
// collectives that want the same files of several nodes don't wait for each other.
func (k *collection) prepare(ctx context.Context) error {
	for _, i := range k.order {
		if err := k.c.contained(func() error { return k.parties[i].prepare(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// newCollection sorts the ranks by nodes, in the order in which they come.
func (c *Cluster) newCollection(t collect.Task, ranks []CollectRank, killPriv bool) (*collection, error) {
	t.Ranks = len(ranks)
	if err := t.Validate(); err != nil {
		return nil, err
	}
	ask := proto.CollectAsk{
		Job: make([]byte, proto.JobSize), Kind: uint32(t.Kind), Type: uint32(t.Type), Op: uint32(t.Op), Root: uint32(t.Root),
		Size: t.Size, Strict: t.Strict, Algorithm: string(t.Algorithm),
	}
	_, _ = rand.Read(ask.Job) // never fails
	places := map[*Node]int{}
	var nodes []*Node
	for i, r := range ranks {
		n, err := r.node()
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", i, err)
		}
		if _, known := places[n]; !known {
			places[n] = len(nodes)
			nodes = append(nodes, n)
			name, epoch := c.opts.View.Self().Name, c.opts.View.Self().Epoch
			if n != nil {
				name, epoch = n.name, n.Record().Epoch
			}
			ask.Nodes, ask.Epochs = append(ask.Nodes, string(name)), append(ask.Epochs, uint64(epoch))
		}
		ask.Of = append(ask.Of, uint32(places[n]))
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
			k.parties = append(k.parties, &ownParty{c: c, task: t, ask: &mine, ranks: ranks, killPriv: killPriv})
		} else {
			k.parties = append(k.parties, &otherParty{n: n, ask: mine, ranks: ranks})
		}
	}
	return k, nil
}

// each has all parties do something side by side. The first that fails ends it
// for the others; of the errors, those are told that are not just that.
func (k *collection) each(ctx context.Context, cancel context.CancelFunc, do func(context.Context, party) error) error {
	errs := make([]error, len(k.parties))
	var all sync.WaitGroup
	for i, p := range k.parties {
		all.Go(func() {
			if errs[i] = k.c.contained(func() error { return do(ctx, p) }); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	var told []error
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			told = append(told, err)
		}
	}
	if len(told) == 0 {
		told = errs
	}
	return errors.Join(told...)
}

// ownParty is this node.
type ownParty struct {
	c        *Cluster
	task     collect.Task
	ask      *proto.CollectAsk
	ranks    []CollectRank
	killPriv bool
	part     *part
}

func (p *ownParty) prepare(ctx context.Context) (err error) {
	var places []collect.Place
	for rank, node := range p.ask.Of {
		if node == p.ask.Me {
			r := p.ranks[rank]
			places = append(places, collect.Place{Rank: rank, Source: r.Source.Local, Target: r.Target.Local})
		}
	}
	p.part, err = p.c.newPart(ctx, p.task, p.ask, places, 0)
	return err
}

func (p *ownParty) work(ctx context.Context) error {
	defer context.AfterFunc(ctx, p.part.stop)()
	return p.part.run()
}

func (p *ownParty) commit(ctx context.Context) error { return p.part.commit(ctx, p.killPriv) }

func (p *ownParty) drop(context.Context) {
	if p.part != nil {
		p.part.drop()
	}
}

func (p *ownParty) report() collect.Report { return p.part.report() }

func (p *ownParty) costs() []byte { return p.part.costs }

// otherParty is another node.
type otherParty struct {
	n     *Node
	ask   proto.CollectAsk
	ranks []CollectRank
	// in is the session in which it was prepared.
	in   *session
	last proto.CollectAnswer
	// enough ends keep; nil before that.
	enough func()
}

// handles gives the node's ranks their handles, which must be of one session.
func (p *otherParty) handles(ctx context.Context) error {
	p.ask.Files, p.in = nil, nil
	for rank, node := range p.ask.Of {
		if node != p.ask.Me {
			continue
		}
		f := proto.CollectFile{Rank: uint32(rank)}
		for _, one := range []struct {
			file   *File
			handle *uint64
		}{{p.ranks[rank].Source.Remote, &f.Source}, {p.ranks[rank].Target.Remote, &f.Target}} {
			if one.file == nil {
				continue
			}
			s, handle, err := one.file.opened(ctx)
			if err != nil {
				return err
			}
			if p.in != nil && p.in != s {
				return fmt.Errorf("node %s: the session broke meanwhile: %w", p.n.name, ErrUnreachable)
			}
			p.in, *one.handle = s, handle
		}
		p.ask.Files = append(p.ask.Files, f)
	}
	return nil
}

func (p *otherParty) prepare(ctx context.Context) error {
	if err := p.handles(ctx); err != nil {
		return err
	}
	for {
		var turn proto.CollectAnswer
		if err := p.askOnce(ctx, question{method: proto.MethodCollect, in: &p.ask, out: &turn}); err != nil {
			return err
		}
		if turn.Done {
			p.keep(ctx)
			return nil
		}
	}
}

// askOnce asks in the session in which it was prepared.
func (p *otherParty) askOnce(ctx context.Context, q question) error {
	ctx, cancel := context.WithTimeout(ctx, p.n.c.opts.Timeout)
	defer cancel()
	err := p.n.askIn(ctx, p.in, q)
	if err != nil {
		p.n.broke(p.in, err, false)
	}
	return p.n.failed(err)
}

func (p *otherParty) work(ctx context.Context) error {
	// Half of the time of a question, so that an answer has some too.
	wait := uint32(max(1, min(p.n.c.opts.Timeout/2, answerLimit)/time.Millisecond))
	for {
		q := question{method: proto.MethodCollectWait, in: &proto.JobAsk{Job: p.ask.Job, Wait: wait}, out: &p.last}
		if err := p.askOnce(ctx, q); err != nil {
			return err
		}
		if a := &p.last; !isShown(a.Algorithm) || !isShown(a.Because) || !isShown(a.Path) {
			return fmt.Errorf("node %s: a report that can't be shown: %w", p.n.name, proto.ErrBody)
		}
		if p.last.Done {
			return nil
		}
	}
}

func (p *otherParty) commit(ctx context.Context) error {
	p.enough()
	for rank, node := range p.ask.Of {
		if f := p.ranks[rank].Target.Remote; node == p.ask.Me && f != nil {
			defer f.changing()()
		}
	}
	return p.askOnce(ctx, question{method: proto.MethodCollectEnd, in: &proto.JobAsk{Job: p.ask.Job, Commit: true}})
}

// drop tells the node; where it can't be told, the end of the session does.
func (p *otherParty) drop(ctx context.Context) {
	if p.enough != nil {
		p.enough()
	}
	if p.in == nil || p.in.ended() {
		return
	}
	_ = p.askOnce(ctx, question{method: proto.MethodCollectEnd, in: &proto.JobAsk{Job: p.ask.Job}}) // it is over, whatever it says
}

func (p *otherParty) report() collect.Report { return reportFromProto(&p.last) }

func (p *otherParty) costs() []byte { return p.last.Costs }

// Sums are the SHA-256 sums of n blocks of the file, as SumsOf; the owner makes
// them.
func (f *File) Sums(ctx context.Context, block, from uint64, n int) ([]byte, error) {
	var out proto.SumsAnswer
	err := f.ask(ctx, true, func(handle uint64) question {
		return question{method: proto.MethodSums, out: &out, in: &proto.SumsAsk{Handle: handle, Block: block, From: from, N: uint32(n)}}
	})
	if err == nil && (len(out.Sums)%sha256.Size != 0 || len(out.Sums) > n*sha256.Size) {
		err = fmt.Errorf("node %s: sums of %d bytes for %d blocks: %w", f.n.name, len(out.Sums), n, proto.ErrBody)
	}
	return out.Sums, err
}

// Length asks for the size of the file.
func (f *File) Length(ctx context.Context) (uint64, error) { return f.end(ctx) }
