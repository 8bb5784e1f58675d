package filecollect

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// part is this node's part of a collective.
type part struct {
	c    *Collector
	task Task
	job  *Job
	// ask describes the nodes; this one has index Me.
	ask      *proto.CollectAsk
	recorder Recorder
	// given are the costs that all nodes were given, nil if they measure them; costs are those
	// of the group, encoded.
	given *plan.Costs
	costs []byte
	// life ends with stop.
	life context.Context //nolint:containedctx // it is the lifetime of the collective, which outlives the request that started it
	stop context.CancelFunc
}

// errTurn reports that other collectives are using the files.
var errTurn = errors.New("filecollect: other collectives are using these files")

// newPart checks the participants, and prepares our files. It waits for the files' turn for at
// most patience; 0 means until the context ends.
//
// Errors: errTurn.
func (c *Collector) newPart(ctx context.Context, t Task, ask *proto.CollectAsk, places []Place, patience time.Duration) (*part, error) {
	if self := c.cluster.Self().Name; ask.Nodes[ask.Me] != string(self) {
		return nil, fmt.Errorf("node %s received a request for node %s: %w", self, ask.Nodes[ask.Me], cluster.ErrDenied)
	}
	for i := range ask.Nodes {
		if i == int(ask.Me) {
			continue
		}
		if _, err := c.taking(ask, i); err != nil {
			return nil, err
		}
	}
	var given *plan.Costs
	if len(ask.Costs) > 0 {
		costs, err := collective.DecodeCosts(ask.Costs)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", objects.ErrInvalid, err)
		}
		given = &costs
	}
	waiting, cancel := ctx, func() {}
	if patience > 0 {
		waiting, cancel = context.WithTimeout(ctx, patience)
	}
	done, err := Turn(waiting, c.o.Store, places)
	cancel()
	if err != nil && ctx.Err() == nil {
		return nil, errTurn
	}
	if err != nil {
		return nil, err
	}
	job, err := Prepare(ctx, t, places, done)
	if errors.Is(err, ErrTask) {
		err = fmt.Errorf("%w: %w", err, objects.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	p := &part{c: c, task: t, job: job, ask: ask, given: given}
	p.life, p.stop = context.WithCancel(c.cluster.Life())
	return p, nil
}

// taking returns a participating node, in the intended incarnation.
func (c *Collector) taking(ask *proto.CollectAsk, i int) (*cluster.Node, error) {
	return c.cluster.NodeAs(members.Name(ask.Nodes[i]), members.Epoch(ask.Epochs[i]))
}

func (p *part) run() error { return p.c.contained(p.attempt) }

func (p *part) attempt() error {
	if len(p.ask.Nodes) == 1 {
		return p.job.Run(p.life, nil)
	}
	nodes, leave, err := p.join(p.life)
	if err != nil {
		return p.explain(err)
	}
	err = p.job.Run(p.life, nodes)
	return p.explain(errors.Join(err, leave()))
}

// explain adds the participants to an error of the communication between the nodes.
func (p *part) explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*RankError](err); ours {
		return err
	}
	gone := errors.Is(err, fabric.ErrLink) || errors.Is(err, collective.ErrTimeout)
	if p.life.Err() != nil && !gone {
		return p.life.Err()
	}
	if gone {
		err = fmt.Errorf("%w: %w", cluster.ErrUnreachable, err)
	}
	return fmt.Errorf("node %s, among nodes %q: %w", p.ask.Nodes[p.ask.Me], p.ask.Nodes, err)
}

// join connects the nodes: each is one rank of a domain, and of a group over it. leave
// releases both.
func (p *part) join(ctx context.Context) (nodes *Nodes, leave func() error, err error) {
	ranks := make([]wire.Rank, len(p.ask.Nodes))
	for i, name := range p.ask.Nodes {
		ranks[i] = wire.Rank(members.Name(name).Rank())
		if i == int(p.ask.Me) {
			continue
		}
		n, failure := p.c.taking(p.ask, i)
		if failure == nil {
			failure = n.Connect(ctx)
		}
		if failure != nil {
			return nil, nil, failure
		}
	}
	d, err := p.c.domains.NewComm(ctx, "collect-"+hex.EncodeToString(p.ask.Job), ranks)
	if err != nil {
		return nil, nil, err
	}
	links, o := p.options()
	f, err := fabric.Over(ctx, d, links)
	if err != nil {
		return nil, nil, errors.Join(err, d.Destroy()) //nolint:contextcheck // cleanup must not depend on the context
	}
	leave = func() error { return errors.Join(f.Close(), d.Destroy()) } //nolint:contextcheck // cleanup must not depend on the context
	g, err := collective.New(ctx, f, o)
	if err != nil {
		return nil, nil, errors.Join(err, leave())
	}
	p.costs = collective.EncodeCosts(g.Costs())
	return &Nodes{Group: g, Table: p.c.cluster.Communicator().Table(), Of: p.of()}, leave, nil
}

// options returns the options of the fabric and of the group: the requested ones, else those
// of the environment.
func (p *part) options() (fabric.Options, collective.Options) {
	links := fabric.Options{Timeout: p.c.o.Timeout}
	o := collective.Options{
		Algorithm: p.task.Algorithm, Strict: p.task.Strict && Ordered(p.of()), Timeout: 2 * p.c.o.Timeout,
		Costs: p.given, Observe: p.recorder.Observe, Logger: p.c.o.Logger,
	}
	if s := p.c.o.Settings; s != nil {
		return s.Fabric(links), s.Options(o)
	}
	return links, o
}

// of returns the node of each rank.
func (p *part) of() []int {
	of := make([]int, len(p.ask.Of))
	for rank, node := range p.ask.Of {
		of[rank] = int(node)
	}
	return of
}

func (p *part) report() Report {
	if len(p.ask.Nodes) == 1 {
		return OneNode()
	}
	return p.recorder.Report()
}

func (p *part) commit(ctx context.Context, killPriv bool) error {
	defer p.stop()
	return p.job.Commit(ctx, killPriv)
}

// drop leaves the files unchanged. Nothing may be in progress.
func (p *part) drop() {
	p.stop()
	p.job.Discard()
}
