package objects

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// placing says into which directory of keyed objects files are put, for which user, and
// what happens to inodes that have their keys.
type placing struct {
	who  Caller
	dir  Ino
	rule ExistingRule
}

// placed is the outcome for one file of keyed.put.
type placed struct {
	Skipped bool
	Err     error
}

// put makes files whose keys are their names. Their content exists before; the caller
// keeps ownership of the content of files that are not made. put emits the events.
func (ks *keyed) put(ctx context.Context, p placing, files []metadata.NewFile) []placed {
	ctx = context.WithoutCancel(ctx)
	done := make([]placed, len(files))
	if contested := ks.putFree(ctx, p, files, done); len(contested) > 0 {
		ks.putContested(ctx, p, files, contested, done)
	}
	return done
}

// putFree makes the files whose keys are not in use, and returns the indices of the
// others.
func (ks *keyed) putFree(ctx context.Context, p placing, files []metadata.NewFile, done []placed) (contested []int) {
	ks.turn.RLock()
	defer ks.turn.RUnlock()
	results, err := ks.meta.Put(ctx, p.dir, files)
	for i := range files {
		r := putResult(results, i, err)
		if errors.Is(r.Err, metadata.ErrExist) || errors.Is(r.Err, metadata.ErrIsDir) {
			contested = append(contested, i)
			continue
		}
		if done[i] = (placed{Err: r.Err}); r.Err == nil {
			ks.keyCame(r.Inode)
		}
	}
	return contested
}

// putResult returns one result of metadata.Put; if Put failed as a whole, its error.
func putResult(results []metadata.PutResult, i int, err error) metadata.PutResult {
	if i < len(results) {
		return results[i]
	}
	return metadata.PutResult{Err: err}
}

// putContested makes those files, by index, whose key or name belongs to another inode
// that may be replaced. It excludes other changes of keys, so that the inode replaced
// is the one that was examined.
func (ks *keyed) putContested(ctx context.Context, p placing, files []metadata.NewFile, which []int, done []placed) {
	ks.turn.Lock()
	unlock := ks.names.lock(p.dir, p.dir)
	var put []metadata.NewFile
	var victims []*victim
	places := make([]int, 0, len(which))
	for _, i := range which {
		skip, err := ks.decide(ctx, p, files[i].Key)
		v := &victim{names: ks.names, unasked: true}
		if err == nil && !skip {
			_, err = v.look(ctx, p.dir, files[i].Name)
		}
		victims = append(victims, v)
		if skip || err != nil && !errors.Is(err, metadata.ErrNotExist) {
			done[i] = placed{Skipped: skip, Err: err}
			continue
		}
		f := files[i]
		f.Replace = true
		put, places = append(put, f), append(places, len(victims)-1)
	}
	var unkeyed []Ino
	if len(put) > 0 {
		results, err := ks.meta.Put(ctx, p.dir, put)
		for n, at := range places {
			r := putResult(results, n, err)
			done[which[at]] = placed{Err: r.Err}
			if r.Err != nil {
				continue
			}
			if r.Replaced != nil {
				victims[at].of(r.Replaced.Ino).removed(*r.Replaced)
			}
			if r.Unkeyed != 0 {
				unkeyed = append(unkeyed, r.Unkeyed)
			}
			ks.keyCame(r.Inode)
		}
	}
	unlock()
	ks.turn.Unlock()
	for _, v := range victims {
		v.release(ctx)
	}
	for _, ino := range unkeyed {
		ks.removeUnkeyed(ctx, ino)
	}
}

// of returns v if it is the victim for ino; otherwise a victim for an inode that is not
// referenced, which the same call has made for the same key.
func (v *victim) of(ino Ino) *victim {
	if v.ino == ino {
		return v
	}
	return &victim{names: v.names, unasked: true}
}

// decide decides whether a key is left as it is (skip), or why it can't be set; without
// either it is free, or the inode that has it will be replaced. The result is stable
// while the caller has keyed.turn for writing.
func (ks *keyed) decide(ctx context.Context, p placing, key string) (skip bool, err error) {
	holder, err := ks.index.holder(ctx, key)
	if err == nil {
		skip, err = ks.givesWay(ctx, p.who, p.rule, holder)
	} else if errors.Is(err, metadata.ErrNotExist) {
		err = nil
	}
	if skip || err != nil {
		return skip, err
	}
	named, err := ks.meta.Lookup(ctx, p.dir, key)
	switch {
	case errors.Is(err, metadata.ErrNotExist):
		return false, nil
	case err != nil || named.Ino == holder.Ino && holder.tensor == "":
		return false, err
	case named.Key == key: // the key was assigned meanwhile
		return ks.givesWay(ctx, p.who, p.rule, carrier{Inode: named})
	}
	// A file that has lost its key: no keyed object, but a file of some user.
	skip, err = ks.givesWay(ctx, p.who, p.rule, carrier{Inode: named})
	if skip || named.IsDir() {
		err = fmt.Errorf("%s/%s exists without the key: %w", keysDirName, key, metadata.ErrExist)
	}
	return false, err
}

// givesWay decides what happens to an inode whose key or name another object is to get:
// skip keeps it; without an error it is replaced.
func (ks *keyed) givesWay(ctx context.Context, who Caller, rule ExistingRule, in carrier) (skip bool, err error) {
	if ks.index.isVacant(in.Inode) {
		return false, nil
	}
	switch rule {
	case ExistingSkip:
		return true, nil
	case ExistingReplace:
		if err = ks.access.mayVacate(ctx, who, in); err != nil {
			return false, fmt.Errorf("replace the object with key %q: %w", in.Key, err)
		}
		return false, nil
	case ExistingFail:
	}
	return false, metadata.ErrExist
}

// keyIndex finds the inodes that carry keys, and determines whether they still have
// bytes. It takes no locks but those of the table.
type keyIndex struct {
	meta  *metadata.Store
	log   *zap.Logger
	tiers tiers
	table *table
}

// isVacant reports whether an inode carries its key without valid content: its bytes
// are lost, or its time to live is over.
func (ix *keyIndex) isVacant(in metadata.Inode) bool { return ix.isOver(in) || ix.lostNow(in) }

// lostNow reports whether an inode's bytes are known to be lost. It pins nothing, so it
// may be called with any lock of the names held.
func (ix *keyIndex) lostNow(in metadata.Inode) bool {
	t, err := ix.tiers.named(in.Device)
	if err != nil {
		return false // they are available again when the device is
	}
	o := ix.table.peek(in.Ino)
	if o == nil {
		return IsLost(in, t.Epoch())
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	switch b := o.body.(type) {
	case content.Lost:
		return true
	case *content.Bound:
		return b.State() == metadata.BoundLost
	case *content.HostFile:
		return false
	}
	return o.epoch != 0 && o.epoch != o.tier.Epoch()
}

// holder returns what carries a key, also one whose time to live is over.
//
// Errors: metadata.ErrNotExist.
func (ix *keyIndex) holder(ctx context.Context, key string) (carrier, error) {
	for before := Ino(0); ; {
		e, err := ix.meta.Key(ctx, key)
		in := carrier{tensor: e.Part}
		if err == nil {
			in.Inode, err = ix.meta.Get(ctx, e.Ino)
		}
		switch {
		case err != nil:
		case e.Part != "":
			in.Key = key
		case in.Key != key:
			err = metadata.ErrNotExist
		}
		if err == nil {
			return in, nil
		}
		// The key may have moved to another inode between the two reads.
		if e.Ino == before || !errors.Is(err, metadata.ErrNotExist) {
			return carrier{}, fmt.Errorf("key %q: %w", key, err)
		}
		before = e.Ino
	}
}

// find returns what a key names, live or lost.
//
// Errors: metadata.ErrNotExist, also for an inode whose time to live is over.
func (ix *keyIndex) find(ctx context.Context, key string) (carrier, error) {
	in, err := ix.holder(ctx, key)
	if err == nil && ix.isOver(in.Inode) {
		err = fmt.Errorf("key %q has expired: %w", key, metadata.ErrNotExist)
	}
	return in, err
}

// isOver reports whether an inode's time to live is over.
func (ix *keyIndex) isOver(in metadata.Inode) bool {
	return in.Expires != (metadata.Timespec{}) && !in.Expires.After(ix.meta.Now())
}
