package metadata

import (
	"context"
	"errors"
	"fmt"
)

// fail sets an error for all files from index from on that have none yet.
func (p *putter) fail(from int, err error) {
	for i := from; i < len(p.results); i++ {
		if p.results[i].Err == nil {
			p.results[i] = PutResult{Err: err}
		}
	}
}

// putter is the state of a running Put.
type putter struct {
	s       *Store
	dir     Ino
	files   []putFile
	results []PutResult
}

// putFile is a validated file of Put.
type putFile struct {
	*NewFile
	node        Node
	maps        []Mapping // in order
	keys, bytes int       // its share of a transaction, as far as it is known
}

// newPutFile validates a file, independently of the directory's content.
func newPutFile(f *NewFile) (putFile, error) {
	p := putFile{NewFile: f, node: f.Node}
	if err := validName(f.Name); err != nil {
		return p, err
	}
	if err := p.node.normalize(); err != nil {
		return p, err
	}
	switch {
	case f.Ino < FirstIno, p.node.Mode.Type() != TypeRegular, f.Expires.Nsec >= 1e9:
		return p, ErrInvalid
	case len(f.Binding) > MaxBinding:
		return p, fmt.Errorf("binding of %d bytes: %w", len(f.Binding), ErrTooLarge)
	}
	if f.Key != "" {
		if err := ValidKey(f.Key); err != nil {
			return p, err
		}
	}
	return p, p.measure()
}

// measure sorts the mappings and estimates the size of the file's records.
func (f *putFile) measure() error {
	var err error
	if f.maps, err = sortedMappings(f.Maps); err != nil {
		return err
	}
	f.keys = 5 + len(f.Xattrs) + len(f.maps)
	f.bytes = 2*inodeRoom + 4*len(f.Name) + 2*len(f.Key) + len(f.Binding) + len(f.maps)*2*mappingRoom
	for name, value := range f.Xattrs {
		if err := validXattr(name); err != nil {
			return err
		}
		if len(value) > MaxXattr {
			return fmt.Errorf("attribute %s: %w", name, ErrTooLarge)
		}
		f.bytes += 16 + len(name) + len(value)
	}
	return nil
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
	todo := make([]int, 0, n)
	for i := at; i < at+n; i++ {
		if p.results[i].Err == nil {
			todo = append(todo, i)
		}
	}
	defer p.s.locks.lock(p.dir)()
	var left []Ino
	err := p.s.grow(ctx, func(t *txn) (err error) {
		left, err = p.run(t, todo)
		return err
	})
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

// run creates files in a transaction, and returns the removed inodes that have more records
// than it removes.
func (p *putter) run(t *txn, todo []int) (left []Ino, err error) {
	t.chunk = max(t.chunk, min(len(todo)*putChunk, 64*putChunk))
	dir, err := t.dir(p.dir)
	switch {
	case err != nil:
		return nil, err
	case p.dir == RootIno:
		return nil, ErrPermission
	}
	some := false
	for _, i := range todo {
		op := putOp{t: t, dir: &dir, putFile: &p.files[i]}
		if err = op.run(); err != nil {
			return nil, err
		}
		p.results[i] = op.res
		if op.res.Err != nil {
			continue
		}
		some = true
		t.fresh(&op.rec)
		if op.leftover {
			left = append(left, op.other.Ino)
		}
	}
	if !some {
		return nil, nil
	}
	return left, t.putInode(&dir)
}
