package objects

import (
	"context"
	"errors"
	"fmt"

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
	b := &binder{
		holder: h, store: h.store, set: set, errs: make([]error, len(set)),
		all: make([]bindJob, len(set)), jobs: map[*content.Tier][]*bindJob{},
	}
	for i := range set {
		b.errs[i] = b.prepare(ctx, i)
	}
	for t, jobs := range b.jobs {
		b.run(ctx, t, jobs)
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
	all    []bindJob // one for each key of the set, in which it is used or not
	jobs   map[*content.Tier][]*bindJob
}

// bindJob is one key for which an object is to be made.
type bindJob struct {
	at   int // index in the set
	body *content.Bound
	file metadata.NewFile
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
	file, err := b.holder.describe(ctx, k, body)
	if err != nil {
		return err
	}
	file.Key = k.Key
	// A key that is not known to be in use is found to be when its record is written.
	if b.store.meta.KnowsKey(k.Key) {
		if free, taken := b.settled(ctx, k); !free {
			return taken
		}
	}
	j := &b.all[i]
	*j = bindJob{at: i, body: body, file: file}
	if b.jobs[t] == nil {
		b.jobs[t] = make([]*bindJob, 0, len(b.set)-i)
	}
	b.jobs[t] = append(b.jobs[t], j)
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

// describe returns the record of an object made of blobs, without its key and number.
func (h *Holder) describe(ctx context.Context, k *Keyed, body *content.Bound) (metadata.NewFile, error) {
	file := metadata.NewFile{
		Name: k.Key, Fleeting: true, Binding: h.bindingOf(ctx, k.Blobs), Size: body.Length(), Allocated: body.Length(),
		Node: metadata.Node{Mode: keyedMode, UID: h.who.UID, GID: h.who.GID},
	}
	text, err := blobsText(sizesOf(k.Blobs))
	if err == nil && text != nil {
		file.Xattrs = map[string][]byte{xattrBlobs: text}
	}
	return file, err
}

// run makes the objects of one device.
func (b *binder) run(ctx context.Context, t *content.Tier, jobs []*bindJob) {
	s := b.store
	granted, claimed := claimJobs(ctx, s.claims, SpaceKeys, jobs, b.errs)
	defer claimed()
	for _, j := range jobs {
		b.errs[j.at] = b.again(ctx, j, b.errs[j.at])
	}
	if jobs = granted; len(jobs) == 0 {
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
	now, files := s.meta.Now(), make([]metadata.NewFile, len(jobs))
	for i, j := range jobs {
		j.file.Ino = inos[i]
		files[i] = j.file
		// The object precedes its record, so that a record is never found without its
		// content.
		s.table.adoptBound(inos[i], t, j.body, facts{size: j.body.Length(), atime: now, mtime: now, ctime: now})
	}
	done := s.keyed.put(ctx, placing{who: b.holder.who, dir: dir, rule: ExistingFail}, files)
	for i, j := range jobs {
		b.errs[j.at] = b.finish(ctx, j, done[i].Err)
	}
}

func (j *bindJob) job() *bindJob { return j }

// claimJobs requests the keys of jobs, which are the names of their files, records the
// results in errs, and returns the jobs whose keys were granted.
func claimJobs[J interface{ job() *bindJob }](ctx context.Context, c *claims, space KeySpace, jobs []J, errs []error) (granted []J, done func()) {
	keys := make([]string, len(jobs))
	for i, j := range jobs {
		keys[i] = j.job().file.Name
	}
	refused, done := c.claim(ctx, space, keys)
	for i, j := range jobs {
		if errs[j.job().at] = refused[i]; refused[i] == nil {
			granted = append(granted, j)
		}
	}
	return granted, done
}

// finish completes one key's job, with the result of writing its record.
func (b *binder) finish(ctx context.Context, j *bindJob, err error) error {
	s, ino, body := b.store, j.file.Ino, j.body
	if err == nil {
		sourceOf(body).attend(body, s.endOf(ino, body, nil)) //nolint:contextcheck // the end of the memory is independent of this call
		return nil
	}
	s.table.dropBound(ino)
	return b.again(ctx, j, err)
}

// again replaces metadata.ErrExist by the outcome for a key that is in use: the same call may
// have been made before.
func (b *binder) again(ctx context.Context, j *bindJob, err error) error {
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
