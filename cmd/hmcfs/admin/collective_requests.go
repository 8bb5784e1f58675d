package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// Collector does what several files are needed for. Its methods may be called
// from any goroutine. The files are named, or shown by their descriptors, which
// stay the caller's; nil is none.
type Collector interface {
	Collect(ctx context.Context, by objects.Caller, r adminapi.CollectRequest, sources, targets []*Named) (adminapi.CollectAnswer, error)
	Verify(ctx context.Context, by objects.Caller, files []*Named) (adminapi.VerifyAnswer, error)
}

// Named is a file that a request means: the descriptor that came with it, or
// where that is nil what the request names.
type Named struct {
	adminapi.File
	Shown *os.File
}

// collect answers a request for a collective.
func (s *Server) collect(ctx context.Context, q *question, read func(any) error) (solution, error) {
	var r adminapi.CollectRequest
	if err := read(&r); err != nil {
		return solution{}, err
	}
	rest := q.received
	sources, rest, err := q.names(r.Sources, rest)
	if err != nil {
		return solution{}, err
	}
	targets, rest, err := q.names(r.Targets, rest)
	if err != nil {
		return solution{}, err
	}
	if err = tooMany(rest); err != nil {
		return solution{}, err
	}
	ctx, done := q.attended(ctx)
	defer done()
	out, err := s.opts.Collector.Collect(ctx, callerOf(q.peer), r, sources, targets)
	return solution{reply: adminapi.Reply{Collected: &out}}, err
}

// verify answers the question whether files are equal.
func (s *Server) verify(ctx context.Context, q *question, read func(any) error) (solution, error) {
	var r adminapi.VerifyRequest
	if err := read(&r); err != nil {
		return solution{}, err
	}
	files, rest, err := q.names(r.Files, q.received)
	if err == nil {
		err = tooMany(rest)
	}
	if err != nil {
		return solution{}, err
	}
	ctx, done := q.attended(ctx)
	defer done()
	out, err := s.opts.Collector.Verify(ctx, callerOf(q.peer), files)
	return solution{reply: adminapi.Reply{Verified: &out}}, err
}

// names gives each file that is meant its descriptor, where those travel, and
// returns those that are left.
func (q *question) names(files []*adminapi.File, left []*os.File) ([]*Named, []*os.File, error) {
	out := make([]*Named, len(files))
	for i, f := range files {
		switch {
		case f == nil:
			continue
		case !q.carried && (f.Path == "") == (f.Ino == 0):
			return nil, nil, fmt.Errorf(`%w: name each file, by "path" or by "ino"`, errInvalid)
		case !q.carried:
			out[i] = &Named{File: *f}
			continue
		case *f != adminapi.File{}:
			return nil, nil, fmt.Errorf("%w: a file is named both by its descriptor and by name", errInvalid)
		case len(left) == 0:
			return nil, nil, fmt.Errorf("%w: too few descriptors", errInvalid)
		}
		out[i] = &Named{Shown: left[0]}
		left = left[1:]
	}
	return out, left, nil
}

func tooMany(left []*os.File) error {
	if len(left) > 0 {
		return fmt.Errorf("%w: %d descriptors too many", errInvalid, len(left))
	}
	return nil
}

// attended is a context that ends when the client who waits for the answer has
// gone. done is called when the answer is there, and before anything is sent.
func (q *question) attended(ctx context.Context) (attended context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	if q.conn == nil || q.conn.SetReadDeadline(time.Time{}) != nil {
		return ctx, cancel
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		// Nothing is to come but the end.
		var one [1]byte
		if _, err := q.conn.Read(one[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	}()
	return ctx, func() {
		_ = q.conn.SetReadDeadline(time.Unix(1, 0)) // a connection that is gone has ended the reading
		<-over
		cancel()
	}
}
