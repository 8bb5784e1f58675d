package filecollect

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

const (
	// maxJobs bounds the collectives of one session that are in progress.
	maxJobs = 16
	// answerLimit bounds a wait for a collective.
	answerLimit = 5 * time.Second
	// turnLimit bounds the time for which a request waits for the turn of its files, before it
	// must be repeated.
	turnLimit = 500 * time.Millisecond
	// unwantedAfter is the time for which a node keeps its part of a collective without
	// requests for it: the part holds memory, and others wait for the files. The node that
	// requested it confirms several times within that time that it is needed.
	unwantedAfter = 2 * time.Minute
)

// collected is this node's part of a collective that a session has requested. It is ended
// once, by a request or by the end of the session.
type collected struct {
	part *part
	// files are in use until the end.
	files    []cluster.UsedFile
	killPriv bool
	// ended is closed when the work in progress has ended.
	ended chan struct{}
	// begin runs once: by the first wait, or instead by the end.
	begin sync.Once
	err   error
	// unwanted drops the part when there has been no request for it for some time.
	// Collector.mu guards it.
	unwanted *time.Timer
}

// jobName names a collective of a session.
type jobName struct {
	from cluster.ClientSession
	id   string
}

// String returns the id for the log.
func (n jobName) String() string { return hex.EncodeToString([]byte(n.id)) }

// servePrepare prepares this node's part of a collective. If other collectives use its files
// for long, the request must be repeated, which the answer says.
func (c *Collector) servePrepare(ctx context.Context, from cluster.ClientSession, q *proto.CollectAsk) (any, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	t := taskFromProto(q)
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", objects.ErrInvalid, err)
	}
	// The memory is allocated after that, and counts.
	if err := c.reserve(from); err != nil {
		return nil, err
	}
	j := &collected{ended: make(chan struct{})}
	places, err := j.places(from, q)
	if err == nil {
		j.part, err = c.newPart(ctx, t, q, places, turnLimit)
	}
	if err != nil {
		j.release(ctx)
		c.unreserve(from)
		if errors.Is(err, errTurn) {
			return &proto.CollectAnswer{}, nil
		}
		return nil, err
	}
	name := jobName{from, string(q.Job)}
	if err = c.addJob(name, j); err != nil { //nolint:contextcheck // the job does not end with the request
		j.end(ctx, c, false) //nolint:errcheck // the error that led here is reported
		c.unreserve(from)
		return nil, err
	}
	return &proto.CollectAnswer{Done: true}, nil
}

// places returns the files of this node's ranks.
func (j *collected) places(from cluster.ClientSession, q *proto.CollectAsk) ([]Place, error) {
	var places []Place
	for _, f := range q.Files {
		p := Place{Rank: int(f.Rank)}
		for _, one := range []struct {
			number uint64
			access objects.Permission
			file   **objects.File
		}{{f.Source, objects.PermRead, &p.Source}, {f.Target, objects.PermWrite, &p.Target}} {
			if one.number == 0 {
				continue
			}
			used, err := from.Use(one.number, one.access)
			if err != nil {
				return nil, err
			}
			*one.file = used.File()
			j.files = append(j.files, used)
			j.killPriv = j.killPriv || !used.ByRoot()
		}
		places = append(places, p)
	}
	return places, nil
}

func (j *collected) release(ctx context.Context) {
	for _, f := range j.files {
		f.Done(ctx)
	}
	j.files = nil
}

// run starts the work, in the background.
func (j *collected) run(background func(func()) bool) {
	j.begin.Do(func() {
		begun := background(func() {
			j.err = j.part.run()
			close(j.ended)
		})
		if !begun {
			j.err = fmt.Errorf("this node is leaving the cluster: %w", objects.ErrClosed)
			close(j.ended)
		}
	})
}

// end commits the results, or drops them, once the work has ended.
func (j *collected) end(ctx context.Context, c *Collector, commit bool) error {
	if !commit {
		j.part.stop()
	}
	j.begin.Do(func() {
		j.err = errors.New("the collective was not started")
		close(j.ended)
	})
	select {
	case <-j.ended:
	case <-ctx.Done():
		// The requesting node is gone, and nothing else ends the work.
		j.part.stop()
		<-j.ended
	}
	defer j.release(ctx)
	if !commit || j.err != nil {
		j.part.drop()
		return j.err
	}
	for _, f := range j.files {
		defer f.Changing()()
	}
	err := j.part.commit(ctx, j.killPriv)
	for _, f := range j.files {
		c.cluster.Changed(f.File().Ino())
	}
	return err
}

// serveWait starts this node's part, and answers when it has ended. A request that does not
// wait only confirms that the part is needed.
func (c *Collector) serveWait(ctx context.Context, from cluster.ClientSession, q *proto.JobAsk) (any, error) {
	j, err := c.job(jobName{from, string(q.Job)}, false)
	if err != nil {
		return nil, err
	}
	if q.Wait == 0 {
		return &proto.CollectAnswer{}, nil
	}
	j.run(c.cluster.Go)
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

// serveEnd ends this node's part.
func (c *Collector) serveEnd(ctx context.Context, from cluster.ClientSession, q *proto.JobAsk) (any, error) {
	j, err := c.job(jobName{from, string(q.Job)}, true)
	if err != nil {
		return nil, err
	}
	if err = j.end(ctx, c, q.Commit); !q.Commit {
		err = nil // the node that drops it knows why
	}
	return nil, err
}

// Left implements cluster.Extension. It drops the work in progress for the session.
func (c *Collector) Left(from cluster.ClientSession) {
	c.mu.Lock()
	var left []*collected
	for name, j := range c.jobs {
		if name.from == from {
			left = append(left, j)
			c.removeLocked(name, j)
		}
	}
	c.mu.Unlock()
	for _, j := range left {
		_ = j.end(context.Background(), c, false) // there is no requester left to notify
	}
}

// reserve counts a collective of a session before memory is allocated for it, until unreserve
// or until it is removed.
//
// Errors: objects.ErrBusy.
func (c *Collector) reserve(from cluster.ClientSession) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.reserved[from]; n >= maxJobs {
		return fmt.Errorf("too many collectives: %d are in progress: %w", n, objects.ErrBusy)
	}
	c.reserved[from]++
	return nil
}

func (c *Collector) unreserve(from cluster.ClientSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unreserveLocked(from)
}

// +checklocks:c.mu
func (c *Collector) unreserveLocked(from cluster.ClientSession) {
	if c.reserved[from]--; c.reserved[from] == 0 {
		delete(c.reserved, from)
	}
}

// addJob adds a collective for which reserve was called, and starts the time after which it is
// dropped without requests, unless it is taken, or the session ends, before.
//
// Errors: cluster.ErrStale when the session has ended; objects.ErrInvalid for an id that
// the session has used.
func (c *Collector) addJob(name jobName, j *collected) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case name.from.Ended(): // Left may have been called
		return fmt.Errorf("the session has ended: %w", cluster.ErrStale)
	case c.jobs[name] != nil:
		return fmt.Errorf("collective %s already exists: %w", name, objects.ErrInvalid)
	}
	c.jobs[name] = j
	j.unwanted = time.AfterFunc(c.unwantedTimeout(), func() { c.expire(name, j) })
	return nil
}

// job returns a collective, and with take removes it, after which the caller must end it. It
// restarts the time after which the collective is dropped.
//
// Errors: cluster.ErrStale.
func (c *Collector) job(name jobName, take bool) (*collected, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[name]
	switch {
	case j == nil:
		return nil, fmt.Errorf("unknown collective %s: %w", name, cluster.ErrStale)
	case take:
		c.removeLocked(name, j)
	default:
		j.unwanted.Reset(c.unwantedTimeout())
	}
	return j, nil
}

// removeLocked removes a collective, which the caller must end.
//
// +checklocks:c.mu
func (c *Collector) removeLocked(name jobName, j *collected) {
	delete(c.jobs, name)
	c.unreserveLocked(name.from)
	j.unwanted.Stop()
}

func (c *Collector) unwantedTimeout() time.Duration { return time.Duration(c.unwantedAfter.Load()) }

// expire drops a part that no request has asked for.
func (c *Collector) expire(name jobName, j *collected) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs[name] != j {
		return
	}
	begun := c.cluster.Go(func() {
		c.o.Logger.Warn("dropped a collective that received no requests", zap.Stringer("collective", name),
			zap.Duration("after", c.unwantedTimeout()))
		_ = j.end(context.Background(), c, false) // there is no requester left to notify
	})
	if begun { // otherwise the end of the session drops it
		c.removeLocked(name, j)
	}
}

func taskFromProto(q *proto.CollectAsk) Task {
	return Task{
		Kind: plan.Kind(q.Kind), Type: elem.Type(q.Type), Op: elem.Op(q.Op), Root: int(q.Root),
		Ranks: len(q.Of), Size: q.Size, Strict: q.Strict, Algorithm: plan.Algorithm(q.Algorithm),
	}
}

func reportToProto(r Report) *proto.CollectAnswer {
	return &proto.CollectAnswer{
		Done: true, Algorithm: string(r.Algorithm), Because: r.Because, Path: r.Path, Calls: r.Calls,
		Predicted: uint64(max(0, r.Predicted)), Measured: uint64(max(0, r.Measured)),
		Sent: r.Sent, Received: r.Received, Retries: uint32(max(0, r.Retries)),
	}
}

func reportFromProto(a *proto.CollectAnswer) Report {
	return Report{
		Algorithm: plan.Algorithm(a.Algorithm), Because: a.Because, Path: a.Path, Calls: a.Calls,
		Predicted: time.Duration(a.Predicted), Measured: time.Duration(a.Measured),
		Sent: a.Sent, Received: a.Received, Retries: int(a.Retries),
	}
}
