package metadata

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// putter is the state of a running Put.
type putter struct {
	s       *Store
	dir     Ino
	files   []putFile
	results []PutResult
	todo    []int // of the running transaction
}

// Put creates several files in one directory, in few transactions: each file is created
// completely or not at all, independently of the others. The results are in the order of
// the files, which are created in that order too: of two files with the same name the
// second may replace the first.
//
// Errors: ErrNotExist and ErrNotDir for the directory, ErrPermission in the root, and those
// of the KV. The files before the error keep their results, and the others have the error
// as theirs.
func (s *Store) Put(ctx context.Context, dir Ino, files []NewFile) ([]PutResult, error) {
	p := s.putters.start(s, dir, len(files))
	defer s.putters.end(p)
	for i := range files {
		p.results[i].Err = p.files[i].check(&files[i])
	}
	for at := 0; at < len(files); {
		n := p.batch(at)
		done, err := p.make(ctx, at, n)
		if err != nil {
			p.fail(at+done, err)
			return p.results, fmt.Errorf("put %d files: %w", len(files), err)
		}
		at += n
	}
	return p.results, nil
}

// putters keeps the memory of putters that have ended.
type putters struct{ pool sync.Pool }

// start returns a putter with memory for n files.
func (ps *putters) start(s *Store, dir Ino, n int) *putter {
	p, _ := ps.pool.Get().(*putter)
	if p == nil {
		p = &putter{s: s}
	}
	p.dir, p.files, p.todo = dir, slices.Grow(p.files, n)[:n], slices.Grow(p.todo, min(n, putBatch))
	p.results = make([]PutResult, n)
	return p
}

// end keeps the memory of a putter for others, unless it is large.
func (ps *putters) end(p *putter) {
	if cap(p.files) > putBatch {
		return
	}
	clear(p.files)
	p.files, p.results = p.files[:0], nil
	ps.pool.Put(p)
}

// fail sets an error for all files from index from on that have none yet.
func (p *putter) fail(from int, err error) {
	for i := from; i < len(p.results); i++ {
		if p.results[i].Err == nil {
			p.results[i] = PutResult{Err: err}
		}
	}
}

// batch returns the number of files from index at on that fit into one transaction.
func (p *putter) batch(at int) int {
	keys, bytes := 0, 0
	for i := at; i < len(p.files) && i < at+putBatch; i++ {
		keys, bytes = keys+p.files[i].keys, bytes+p.files[i].bytes
		if i > at && (keys > putKeys || bytes > putBytes) {
			return i - at
		}
	}
	return min(len(p.files)-at, putBatch)
}

// make creates n files in one transaction, or in two halves if that is too large. It
// returns the number of files that have their results, even if it fails.
func (p *putter) make(ctx context.Context, at, n int) (done int, err error) {
	err = p.try(ctx, at, n)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, ErrTooLarge):
		return 0, err
	case n == 1:
		p.results[at] = PutResult{Err: err}
		return 1, nil
	}
	if done, err = p.make(ctx, at, n/2); err != nil {
		return done, err
	}
	more, err := p.make(ctx, at+n/2, n-n/2)
	return done + more, err
}

// try creates n files in one transaction.
func (p *putter) try(ctx context.Context, at, n int) error {
	todo := p.todo[:0]
	for i := at; i < at+n; i++ {
		if p.results[i].Err == nil {
			todo = append(todo, i)
		}
	}
	defer p.s.locks.lock(p.dir)()
	var left []Ino
	err := p.s.Room(ctx)
	if err == nil {
		err = p.s.updateBy(ctx, p.updater(todo), p.dir, func(t *txn) (err error) {
			left, err = p.run(t, todo)
			return err
		})
	}
	if err != nil {
		// The refusals were determined in a transaction that was not committed.
		for _, i := range todo {
			p.results[i] = PutResult{}
		}
		return err
	}
	for _, ino := range left {
		p.s.purgeSoon(ctx, ino)
	}
	return nil
}

// updater returns how some of the files are created.
func (p *putter) updater(todo []int) updater {
	for _, i := range todo {
		if !p.files[i].Fleeting {
			return p.s.kv.Update
		}
	}
	return p.s.soon()
}

// run creates files in a transaction, and returns the removed inodes that have more records
// than it removes.
func (p *putter) run(t *txn, todo []int) (left []Ino, err error) {
	t.chunk = max(t.chunk, min(len(todo)*putChunk, keptArena))
	dir, err := t.dir(p.dir)
	switch {
	case err != nil:
		return nil, err
	case p.dir == RootIno:
		return nil, ErrPermission
	}
	some := false
	op := putOp{t: t, dir: &dir}
	for _, i := range todo {
		if t.err != nil {
			return nil, t.err
		}
		op.begin(&p.files[i])
		if err = op.run(); err != nil {
			return nil, err
		}
		p.results[i] = op.res
		if op.res.Err != nil {
			continue
		}
		some = true
		p.results[i].Inode = t.fresh(&op.rec)
		if op.leftover {
			left = append(left, op.other.Ino)
		}
	}
	if some {
		t.renew(&dir)
	}
	return left, nil
}
