package devices

import (
	"context"
	"fmt"
	"sync"
)

// Queue is a list of jobs that a goroutine of the host executes in order, for
// implementations of Stream. Once one has failed, the ones after it are not executed.
type Queue struct {
	dev    Device
	cancel context.CancelFunc
	ended  chan struct{}
	wake   chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	jobs []Job
	// +checklocks:mu
	closed bool
	// failed is the first error of a job.
	// +checklocks:mu
	failed error
}

// Job is a piece of work.
type Job struct {
	// Work executes it. Its context ends with the queue.
	Work func(ctx context.Context) error
	// Done, if not nil, is called afterwards with the error of the work, or of a job before
	// it.
	Done func(error)
	// Hold lists memory that is released when the job has ended.
	Hold []*Memory
	// Event, if not nil, is the event that the work waits for or records. Add keeps it
	// until the job has ended, since it may be closed before.
	Event Event

	release func()
}

// NewQueue returns a queue for a device's stream. Close ends it.
func NewQueue(ctx context.Context, d Device) *Queue {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	q := &Queue{dev: d, cancel: cancel, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	go q.run(ctx)
	return q
}

// Begin adds work on spans, which it checks, and holds until the work is done.
func (q *Queue) Begin(work func(context.Context) error, spans ...Span) error {
	j := Job{Work: work}
	for _, span := range spans {
		if err := span.Check(q.dev); err != nil {
			return err
		}
	}
	for _, span := range spans {
		span.Mem.Retain()
		j.Hold = append(j.Hold, span.Mem)
	}
	err := q.Add(j)
	if err != nil {
		j.end()
	}
	return err
}

// Add adds a job. If that is no longer possible, it returns ErrClosed or the error of the
// failed job.
func (q *Queue) Add(j Job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return q.errClosed()
	case q.failed != nil:
		return q.failed
	}
	if k, ok := j.Event.(Keeper); ok {
		j.release = k.Keep()
	}
	q.jobs = append(q.jobs, j)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// Close cancels the jobs that have not started, which fail with ErrClosed, and waits for
// the rest.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.cancel()
	<-q.ended
}

func (q *Queue) errClosed() error {
	return fmt.Errorf("stream of %s: %w", q.dev.Info().Name, ErrClosed)
}

// run executes the jobs until the queue is closed.
func (q *Queue) run(ctx context.Context) {
	defer close(q.ended)
	for {
		select {
		case <-q.wake:
		case <-ctx.Done():
			q.Fail(q.errClosed())
		}
		for {
			j, ok := q.next()
			if !ok {
				break
			}
			q.do(ctx, j)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (q *Queue) next() (Job, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) == 0 {
		q.jobs = nil
		return Job{}, false
	}
	j := q.jobs[0]
	q.jobs = q.jobs[1:]
	return j, true
}

// do executes a job, unless one before it has failed.
func (q *Queue) do(ctx context.Context, j Job) {
	defer j.end()
	if ctx.Err() != nil {
		q.Fail(q.errClosed())
	}
	err := q.Failure()
	if err == nil && j.Work != nil {
		if err = j.Work(ctx); err != nil {
			if ctx.Err() != nil {
				err = q.errClosed()
			}
			q.Fail(err)
		}
	}
	if j.Done != nil {
		j.Done(err)
	}
}

// Failure returns the first error, or nil.
func (q *Queue) Failure() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failed
}

// Fail makes all jobs that have not started fail. Only the first error counts.
func (q *Queue) Fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed == nil {
		q.failed = err
	}
}

// end releases everything that the job held. Errors of releasing memory are ignored: the
// memory is the device's concern by then.
func (j Job) end() {
	for _, m := range j.Hold {
		_ = m.Release()
	}
	if j.release != nil {
		j.release()
	}
}
