package filecollect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/env"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// Options configures a Collector.
type Options struct {
	// Store has the files of this node, which Engine copies.
	Store  *objects.Store
	Engine *transport.Engine
	// Timeout bounds a request to another node, and the time for which a collective may make
	// no progress.
	Timeout time.Duration
	// Settings are the environment's settings for collectives; may be nil.
	Settings *env.Settings
	// Order returns the order in which the ranks of this node should use the fast links
	// between their devices, and a hash of the topology; nil means the order of the ranks.
	Order func(places []Place) (order []plan.Rank, hash string)
	// Logger must not be nil.
	Logger *zap.Logger
}

// Collector runs collectives whose ranks are files of any nodes, and takes part in those of
// other nodes. Without a cluster all files must be this node's. Its methods may be called from
// any goroutine.
type Collector struct {
	o Options
	// unwantedAfter is a time.Duration; tests set a shorter one.
	unwantedAfter atomic.Int64
	measured      measured
	// cluster and domains are set by Begin; nil without a cluster.
	cluster *cluster.Cluster
	domains *domain.Domains

	mu sync.Mutex
	// jobs holds the parts of collectives that other nodes have requested.
	// +checklocks:mu
	jobs map[jobName]*collected
	// reserved counts them by session, including those being prepared.
	// +checklocks:mu
	reserved map[cluster.ClientSession]int
}

var _ cluster.Extension = (*Collector)(nil)

// New returns a Collector. To work with other nodes it must be an extension of the cluster.
func New(o Options) *Collector {
	c := &Collector{o: o, jobs: map[jobName]*collected{}, reserved: map[cluster.ClientSession]int{}}
	c.unwantedAfter.Store(int64(unwantedAfter))
	return c
}

// Begin implements cluster.Extension.
func (c *Collector) Begin(nodes *cluster.Cluster) (map[rpc.Method]cluster.Handler, error) {
	domains, err := domain.New(nodes.Communicator(), domain.Options{Timeout: c.o.Timeout, Logger: c.o.Logger})
	if err != nil {
		return nil, err
	}
	c.cluster, c.domains = nodes, domains
	return map[rpc.Method]cluster.Handler{
		proto.MethodCollect:     cluster.Answer(c.servePrepare),
		proto.MethodCollectWait: cluster.Answer(c.serveWait),
		proto.MethodCollectEnd:  cluster.Answer(c.serveEnd),
	}, nil
}

// End implements cluster.Extension.
func (c *Collector) End() error {
	if c.domains == nil {
		return nil
	}
	return c.domains.Close()
}

// Outcome describes a completed collective.
type Outcome struct {
	Report

	// Nodes is the number of nodes that have files.
	Nodes int
	// Took does not include opening the files.
	Took time.Duration
}

// Run runs a collective. Nothing is changed before all results are complete.
//
// Errors: ErrTask, and for files of this node a *RankError; those of the nodes, which include
// the node's name; cluster.ErrUnreachable if a node does not answer.
func (c *Collector) Run(ctx context.Context, t Task, ranks []FileRank, killPriv bool) (Outcome, error) {
	has := map[*cluster.Node]bool{}
	for _, r := range ranks {
		for _, e := range []cluster.End{r.Source, r.Target} {
			if e.Remote != nil {
				has[e.Remote.Node()] = true
			} else if e.Local != nil {
				has[nil] = true
			}
		}
	}
	if len(has) == 0 {
		return Outcome{}, fmt.Errorf("no rank has a file: %w", objects.ErrInvalid)
	}
	run := c.runHere
	if !has[nil] || len(has) > 1 {
		run = c.runAcross
	}
	begun := time.Now()
	report, err := run(ctx, t, ranks, killPriv)
	return Outcome{Report: report, Nodes: len(has), Took: time.Since(begun)}, err
}

// runHere runs a collective of files of this node.
func (c *Collector) runHere(ctx context.Context, t Task, ranks []FileRank, killPriv bool) (report Report, err error) {
	places := make([]Place, len(ranks))
	for rank, r := range ranks {
		places[rank] = Place{Rank: rank, Source: r.Source.Local, Target: r.Target.Local}
	}
	done, err := Turn(ctx, c.o.Store, places)
	if err != nil {
		return Report{}, err
	}
	job, err := Prepare(ctx, t, places, done)
	if err != nil {
		return Report{}, err
	}
	var order []plan.Rank
	var topology string
	if t.Algorithm != "" && c.o.Order != nil {
		order, topology = c.o.Order(places)
	}
	err = c.contained(func() (err error) {
		report, err = job.RunRanks(ctx, region.NewTable(c.o.Engine), order, topology)
		return err
	})
	if err != nil {
		job.Discard()
		return Report{}, err
	}
	return report, job.Commit(ctx, killPriv)
}

// contained runs a step of a collective, which another node may have requested: a panic ends
// only the collective.
func (c *Collector) contained(fn func() error) error {
	err := Contained(fn)
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		c.o.Logger.Error("a collective has panicked", zap.Stringer("panic", panicked))
	}
	return err
}
