package admin

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// Collector executes operations on several files. Its methods may be called from any
// goroutine. Files are identified by name or by descriptor; descriptors remain the
// caller's, and nil means none.
type Collector interface {
	Collect(ctx context.Context, by objects.Caller, r adminapi.CollectRequest, sources, targets []*Named) (adminapi.CollectAnswer, error)
	Verify(ctx context.Context, by objects.Caller, files []*Named) (adminapi.VerifyAnswer, error)
}

// Named is a file of a request: the descriptor received with it or, if that is nil, the
// file that the request names.
type Named struct {
	adminapi.File
	Shown *os.File
}

func (s *Server) collect(ctx context.Context, q *question, read func(any) error) (solution, error) {
	var r adminapi.CollectRequest
	if err := errors.Join(read(&r), s.mayChange()); err != nil {
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
	out, err := s.opts.Collector.Collect(ctx, callerOf(q.peer), r, sources, targets)
	return solution{value: out}, err
}

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
	out, err := s.opts.Collector.Verify(ctx, callerOf(q.peer), files)
	return solution{value: out}, err
}

// names pairs each file of a request with its descriptor, if it is a frame of a session, and returns the remaining
// descriptors.
func (q *question) names(files []*adminapi.File, left []*os.File) ([]*Named, []*os.File, error) {
	out := make([]*Named, len(files))
	for i, f := range files {
		switch {
		case f == nil:
			continue
		case !q.framed && (f.Path == "") == (f.Ino == 0):
			return nil, nil, fmt.Errorf(`%w: name each file, by "path" or by "ino"`, errInvalid)
		case !q.framed:
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
