package filecollect

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/transport"
)

// Place is a rank whose files are in a store of this node. They remain the caller's, and must
// stay open until the job has ended.
type Place struct {
	Rank int
	// Source is read if the task reads the rank.
	Source *objects.File
	// Target receives the result; nil means none.
	Target *objects.File
}

// Job is one node's part of a task. Its methods must not be called concurrently, and Commit or
// Discard ends it.
type Job struct {
	task Task
	// done releases the turn of the files.
	done   func()
	places []Place
	files  []File
	drafts []ranked
}

// ranked is the result of a rank.
type ranked struct {
	rank  int
	draft *objects.Draft
}

// Turn waits for the turn of the files of some ranks (objects.Store.TakeTurn), which is then
// passed to Prepare. For a task on several nodes, the turns of the nodes must be taken one
// after the other, in the order of the nodes' names, so that two tasks cannot deadlock.
//
// Errors: the context's.
func Turn(ctx context.Context, s *objects.Store, places []Place) (done func(), err error) {
	var reads, writes []objects.Ino
	for _, p := range places {
		if p.Source != nil {
			reads = append(reads, p.Source.Ino())
		}
		if p.Target != nil {
			writes = append(writes, p.Target.Ino())
		}
	}
	if done, err = s.TakeTurn(ctx, reads, writes); err != nil {
		return nil, fmt.Errorf("wait for other collectives on these files: %w", err)
	}
	return done, nil
}

// Prepare checks the files, and allocates the memory for the results. Nothing is changed yet.
// done releases the turn of the files: Commit and Discard call it, and Prepare itself if it
// fails.
//
// Errors: ErrTask; a RankError, for a source of another size with ErrTask, else with the
// errors of objects.File.Draft.
func Prepare(ctx context.Context, t Task, places []Place, done func()) (*Job, error) {
	j, whole := &Job{task: t, places: places, done: done}, false
	defer func() {
		if !whole {
			j.Discard() // also on a panic: others wait for the files
		}
	}()
	if err := t.Validate(); err != nil {
		return nil, err
	}
	for _, p := range places {
		if err := j.add(ctx, p); err != nil {
			return nil, ofRank(p.Rank, err)
		}
	}
	whole = true
	return j, nil
}

func (j *Job) add(ctx context.Context, p Place) error {
	f := File{Rank: p.Rank}
	if p.Rank < 0 || p.Rank >= j.task.Ranks {
		return fmt.Errorf("invalid rank; there are %d ranks: %w", j.task.Ranks, ErrTask)
	}
	if j.task.HasSource(p.Rank) {
		if p.Source == nil {
			return fmt.Errorf("no source given: %w", ErrTask)
		}
		if size := p.Source.Size(); size != j.task.Size {
			return fmt.Errorf("it has %d bytes, not %d: %w", size, j.task.Size, ErrTask)
		}
		f.Source = source{p.Source}
	}
	if p.Target != nil {
		draft, err := p.Target.Draft(ctx, j.task.ResultSize(p.Rank))
		if err != nil {
			return fmt.Errorf("allocate its result: %w", err)
		}
		f.Result = result{draft}
		j.drafts = append(j.drafts, ranked{rank: p.Rank, draft: draft})
	}
	j.files = append(j.files, f)
	return nil
}

// Run makes the results. Its errors are those of the function Run.
func (j *Job) Run(ctx context.Context, nodes *Nodes) error { return Run(ctx, j.task, j.files, nodes) }

// Commit makes the results the contents of their files: of all files or, if one of them was
// changed in the meantime, of none. An error during the commit leaves each file complete, with
// either its old or its new content, except that a file whose bytes are copied over may be
// left with some of both (objects.Draft.Commit). It names the files that were not replaced.
func (j *Job) Commit(ctx context.Context, killPriv bool) error {
	for _, d := range j.drafts {
		if err := d.draft.Check(); err != nil {
			j.Discard()
			return ofRank(d.rank, err)
		}
	}
	defer j.done()
	var errs []error
	for _, d := range j.drafts {
		errs = append(errs, ofRank(d.rank, d.draft.Commit(ctx, killPriv)))
	}
	j.drafts = nil
	return errors.Join(errs...)
}

// Discard releases the memory of the results.
func (j *Job) Discard() {
	defer j.done()
	for _, d := range j.drafts {
		d.draft.Discard()
	}
	j.drafts = nil
}

// source is a file as a Source.
type source struct{ f *objects.File }

// Read reads all of p.
func (s source) Read(ctx context.Context, p []byte, off uint64) error {
	n, err := s.f.ReadAt(ctx, p, off)
	if err == nil && n < len(p) {
		err = fmt.Errorf("it was truncated to %d bytes in the meantime: %w", off+uint64(n), io.ErrUnexpectedEOF)
	}
	return err
}

// result is a draft as a Result.
type result struct{ d *objects.Draft }

// Write writes all of p.
func (r result) Write(ctx context.Context, p []byte, off uint64) error {
	return r.d.CopyIn(ctx, transport.HostSpan(p), off)
}
