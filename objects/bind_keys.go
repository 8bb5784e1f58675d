package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// Bind makes keys name the holder's memory, without a copy: it creates an object for
// each key in the device's directory of keyed objects. A file that is registered as a
// whole gets the key itself. The result has an error for each key, nil for success; many
// keys take few transactions.
//
// Errors by key: metadata.ErrExist for a key of another object that is not lost;
// ErrInconsistent for one that this holder has set to other blobs (to the same blobs is
// a success), and for a file that has another key; ErrInvalid; ErrForbidden if the user
// may not make files on the device; ErrUnsupported for a part of a file; ErrLost;
// ErrClosed.
func (h *Holder) Bind(ctx context.Context, set []Keyed) []error {
	b := h.store.newBinder(h, set)
	defer h.store.endBinder(b)
	for i := range set {
		b.errs[i] = b.prepare(ctx, i)
	}
	for jobs, files := b.jobs, b.files; len(jobs) > 0; {
		n := ofOneTier(jobs, files)
		b.run(ctx, jobs[:n], files[:n])
		jobs, files = jobs[n:], files[n:]
	}
	for i, err := range b.errs {
		if err != nil {
			b.errs[i] = fmt.Errorf("set key %q: %w", set[i].Key, err)
		}
	}
	return b.errs
}

// binder executes one call of Bind.
type binder struct {
	holder *Holder
	store  *Store
	set    []Keyed
	errs   []error
	// jobs are the keys for which objects are to be made, and files the records of these, in the same
	// order.
	jobs  []bindJob
	files []metadata.NewFile
	// bindings has the bindings of the files.
	bindings []byte
	// ended is called when the memory of an object ends.
	ended endOfMemory
}

// bindJob is one key for which an object is to be made.
type bindJob struct {
	at   int // index in the set
	body *content.Bound
	tier *content.Tier
}

// keptBinds is the number of keys for which the memory of a call is used again.
const keptBinds = 1024

// newBinder returns a call of Bind, in memory of one that has ended.
func (s *Store) newBinder(h *Holder, set []Keyed) *binder {
	b, _ := s.binders.Get().(*binder)
	if b == nil {
		b = &binder{store: s, ended: s.bindings.memoryEnded}
	}
	b.holder, b.set, b.errs = h, set, make([]error, len(set))
	b.jobs, b.files = slices.Grow(b.jobs, len(set)), slices.Grow(b.files, len(set))
	if h.id != (sessionID{}) {
		b.bindings = slices.Grow(b.bindings, len(set)*bindingRoom)
	}
	return b
}

// endBinder keeps the memory of a call for others, unless it is large.
func (s *Store) endBinder(b *binder) {
	if cap(b.jobs) > keptBinds || cap(b.files) > keptBinds || cap(b.bindings) > keptBinds*bindingRoom {
		return
	}
	clear(b.jobs)
	clear(b.files)
	b.holder, b.set, b.errs, b.jobs, b.files, b.bindings = nil, nil, nil, b.jobs[:0], b.files[:0], b.bindings[:0]
	s.binders.Put(b)
}

// ofOneTier moves the jobs of the tier of the first to the front, with their files, and returns their
// number.
func ofOneTier(jobs []bindJob, files []metadata.NewFile) (n int) {
	t := jobs[0].tier
	if !slices.ContainsFunc(jobs, func(j bindJob) bool { return j.tier != t }) {
		return len(jobs)
	}
	allJobs, allFiles := slices.Clone(jobs), slices.Clone(files)
	at := 0
	for _, ours := range []bool{true, false} {
		for i := range allJobs {
			if (allJobs[i].tier == t) == ours {
				jobs[at], files[at] = allJobs[i], allFiles[i]
				at++
			}
		}
		if ours {
			n = at
		}
	}
	return n
}

// prepare handles a key that names a file completely; for any other key it does all
// checks that are possible before the object is made.
func (b *binder) prepare(ctx context.Context, i int) error {
	k := &b.set[i]
	if err := errors.Join(ctx.Err(), b.holder.begin(), metadata.ValidKey(k.Key)); err != nil {
		return err
	}
	if len(k.Blobs) > 0 && k.Blobs[0].Region != nil && k.Blobs[0].Region.body == nil {
		return b.holder.bindFile(ctx, k)
	}
	body, t, err := b.store.bindings.blobContent(b.holder, k.Blobs)
	if err != nil {
		return err
	}
	// A key that is not known to be in use is found to be when its record is written.
	if b.store.meta.KnowsKey(k.Key) {
		if free, taken := b.settled(ctx, k); !free {
			return taken
		}
	}
	n := len(b.files)
	b.files = b.files[:n+1]
	if err = b.holder.describe(k, body, &b.files[n]); err != nil {
		b.files = b.files[:n]
		return err
	}
	b.files[n].Key = k.Key
	b.files[n].Binding, b.bindings = b.holder.addBinding(ctx, b.bindings, k.Blobs)
	b.jobs = append(b.jobs, bindJob{at: i, body: body, tier: t})
	return nil
}

// settled reports whether a key still needs an object (free), or else the outcome for
// it: nil if it already names these blobs.
func (b *binder) settled(ctx context.Context, k *Keyed) (free bool, err error) {
	in, err := b.store.index.holder(ctx, k.Key)
	if errors.Is(err, metadata.ErrNotExist) || err == nil && b.store.index.isVacant(in.Inode) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if in.tensor != "" {
		return false, metadata.ErrExist
	}
	o := b.store.table.pinLoaded(in.Ino)
	if o == nil {
		return false, metadata.ErrExist
	}
	defer b.store.table.unpin(context.WithoutCancel(ctx), o, pinUse)
	return false, o.checkMadeOf(b.holder, k.Blobs)
}

// describe stores the record of an object made of blobs, without its key, number and binding.
func (h *Holder) describe(k *Keyed, body *content.Bound, file *metadata.NewFile) error {
	*file = metadata.NewFile{
		Name: k.Key, Fleeting: true, Size: body.Length(), Allocated: body.Length(),
		Node: metadata.Node{Mode: keyedMode, UID: h.who.UID, GID: h.who.GID},
	}
	if len(k.Blobs) == 1 {
		return nil
	}
	text, err := blobsText(sizesOf(k.Blobs))
	if err == nil {
		file.Xattrs = map[string][]byte{xattrBlobs: text}
	}
	return err
}

// run makes the objects of one device.
func (b *binder) run(ctx context.Context, jobs []bindJob, files []metadata.NewFile) {
	s, t := b.store, jobs[0].tier
	refused, claimed := s.claims.claim(ctx, SpaceKeys, namesOf(files))
	defer claimed()
	granted := 0
	for i, j := range jobs {
		if b.errs[j.at] = b.again(ctx, j, refused[i]); refused[i] == nil {
			jobs[granted], files[granted] = j, files[i]
			granted++
		}
	}
	if jobs, files = jobs[:granted], files[:granted]; granted == 0 {
		return
	}
	dir, err := s.access.keysDirFor(ctx, b.holder.who, t)
	var inos []Ino
	if err == nil {
		inos, err = s.meta.NewInos(ctx, len(jobs))
	}
	if err != nil {
		for _, j := range jobs {
			b.errs[j.at] = err
		}
		return
	}
	now := s.meta.Now()
	for i, j := range jobs {
		files[i].Ino = inos[i]
		// The object precedes its record, so that a record is never found without its
		// content.
		s.table.adoptBound(inos[i], t, j.body, facts{size: j.body.Length(), atime: now, mtime: now, ctime: now})
	}
	done := s.keyed.put(ctx, placing{who: b.holder.who, dir: dir, rule: ExistingFail}, files)
	for i, j := range jobs {
		b.errs[j.at] = b.finish(ctx, j, inos[i], done[i].Err)
	}
}

// namesOf returns the names of files, which are their keys.
func namesOf(files []metadata.NewFile) []string {
	names := make([]string, len(files))
	for i := range files {
		names[i] = files[i].Name
	}
	return names
}

// finish completes one key's job, with the result of writing its record.
func (b *binder) finish(ctx context.Context, j bindJob, ino Ino, err error) error {
	if err == nil {
		sourceOf(j.body).attend(ino, b.ended) //nolint:contextcheck // the end of the memory is independent of this call
		return nil
	}
	b.store.table.dropBound(ino)
	return b.again(ctx, j, err)
}

// again replaces metadata.ErrExist by the outcome for a key that is in use: the same call may
// have been made before.
func (b *binder) again(ctx context.Context, j bindJob, err error) error {
	if !errors.Is(err, metadata.ErrExist) {
		return err
	}
	if free, now := b.settled(ctx, &b.set[j.at]); !free {
		return now
	}
	return err
}

// bindFile gives the key to a file that is registered as a whole.
func (h *Holder) bindFile(ctx context.Context, k *Keyed) error {
	if err := checkBlobList(h, k.Blobs); err != nil {
		return err
	}
	r, end := k.Blobs[0].Region, uint64(0)
	for i := range k.Blobs {
		if at := &k.Blobs[i]; at.Region != r || at.Off != end {
			return fmt.Errorf("blob %d does not continue the file of the previous blob: %w", i, ErrUnsupported)
		}
		end += k.Blobs[i].Len
	}
	if end != r.size {
		return fmt.Errorf("blobs of %d bytes, but the file has %d: %w", end, r.size, ErrUnsupported)
	}
	f, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer f.Abandon(ctx)
	if size := f.Size(); size != r.size {
		return r.cutTo(size)
	}
	return h.keyFile(ctx, k, r.ino)
}

// keyFile sets the key and the blobs of a file.
func (h *Holder) keyFile(ctx context.Context, k *Keyed, ino Ino) error {
	s := h.store
	a, err := s.attrs.get(ctx, ino)
	if err != nil {
		return err
	}
	if !h.who.May(&a.Inode, PermWrite) {
		return fmt.Errorf("user %d may not write file %d: %w", h.who.UID, ino, ErrForbidden)
	}
	had, err := s.attrs.textXattr(ctx, ino, xattrBlobs)
	if err != nil {
		return err
	}
	want, err := blobsText(sizesOf(k.Blobs))
	if err != nil {
		return err
	}
	switch {
	case a.Key == k.Key && had == string(want):
		h.rememberFile(k.Key, ino)
		return nil
	case a.Key != "":
		return fmt.Errorf("the file already has key %q and blobs %q: %w", a.Key, had, ErrInconsistent)
	}
	if err = s.keyed.claimKey(ctx, k.Key); err != nil {
		return err
	}
	if want != nil {
		err = s.attrs.setXattr(ctx, ino, xattrBlobs, want, 0)
	} else if had != "" {
		err = goneIsFine(s.attrs.removeXattr(ctx, ino, xattrBlobs))
	}
	if err == nil {
		err = s.setKey(ctx, carrier{Inode: a.Inode}, k.Key, 0)
	}
	if err != nil {
		return err
	}
	h.rememberFile(k.Key, ino)
	return nil
}

// claimKey takes a key from an inode whose bytes are lost or whose time to live is
// over.
//
// Errors: metadata.ErrExist.
func (ks *keyed) claimKey(ctx context.Context, key string) error {
	in, err := ks.index.holder(ctx, key)
	switch {
	case errors.Is(err, metadata.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !ks.index.isVacant(in.Inode):
		return metadata.ErrExist
	}
	return goneIsFine(ks.vacate(ctx, in))
}
