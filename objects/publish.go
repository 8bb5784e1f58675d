package objects

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/metadata"
)

// publishChunk is how many keys are published under the lock of the names at a
// time.
const publishChunk = 256

// Publish offers memory under keys, each to the first who receives it: an
// object of each key is made in publish/. The results have the order of set;
// a key has a publication or an error.
//
// Errors by key: metadata.ErrExist when another has published the key;
// ErrInconsistent when this holder has, with other blobs (with the same ones it
// is the same publication); ErrUnsupported for a region that is a file, which
// is renamed into publish/ instead; ErrForbidden for a user who may not make
// names in publish/; metadata.ErrInvalidKey; ErrInvalid; ErrLost for memory
// that has ended; ErrClosed.
func (h *Holder) Publish(ctx context.Context, set []Keyed) ([]*Publication, []error) {
	all, errs := make([]*Publication, len(set)), make([]error, len(set))
	for at := 0; at < len(set); at += publishChunk {
		end := min(at+publishChunk, len(set))
		if err := h.mayPublish(ctx); err != nil {
			for i := at; i < len(set); i++ {
				errs[i] = fmt.Errorf("publish %q: %w", set[i].Key, err)
			}
			return all, errs
		}
		h.publish(ctx, set[at:end], all[at:end], errs[at:end])
	}
	return all, errs
}

// mayPublish says whether the holder's user may make names in publish/.
func (h *Holder) mayPublish(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := h.begin(); err != nil {
		return err
	}
	dir, err := h.store.Attr(ctx, metadata.PublishIno)
	if err == nil && !h.who.may(dir, modeWrite|modeSearch) {
		err = fmt.Errorf("user %d may make nothing in publish: %w", h.who.UID, ErrForbidden)
	}
	return err
}

// newcomer is an object on its way into publish/.
type newcomer struct {
	at    int // in the set
	key   string
	blobs []Blob
	ino   Ino
	body  *bound
	offer *offer
	file  metadata.NewFile
}

func (h *Holder) publish(ctx context.Context, set []Keyed, all []*Publication, errs []error) {
	made, err := h.prepare(ctx, set, errs)
	if err == nil {
		h.store.putPublished(context.WithoutCancel(ctx), made, all, errs)
	}
	for _, f := range made {
		switch {
		case err != nil:
			errs[f.at] = err
		case errs[f.at] == nil && all[f.at] == f.offer.publication:
			f.body.attend(func(ctx context.Context) { h.store.withdraw(ctx, f.ino, f.offer) })
			continue
		}
		f.body.end()
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("publish %q: %w", set[i].Key, err)
		}
	}
}

// prepare makes the content of the keys that can be.
func (h *Holder) prepare(ctx context.Context, set []Keyed, errs []error) (made []*newcomer, err error) {
	s := h.store
	binding, err := sessionBinding(h.who)
	if err != nil {
		return nil, err
	}
	for i := range set {
		f := &newcomer{at: i, key: set[i].Key, blobs: set[i].Blobs}
		t := (*tier)(nil)
		if errs[i] = metadata.ValidKey(f.key); errs[i] == nil {
			f.body, t, errs[i] = s.blobContent(h, f.blobs)
		}
		if errs[i] != nil {
			continue
		}
		f.offer = newOffer(f.key, false, newPublication())
		f.file = metadata.NewFile{
			Name: f.key, Device: t.name, Size: f.body.size, Allocated: f.body.size, Binding: binding,
			Node:   metadata.Node{Mode: metadata.TypeRegular | 0o600, UID: h.who.UID, GID: h.who.GID},
			Xattrs: map[string][]byte{xattrBlobs: []byte(blobsText(f.blobs))},
		}
		made = append(made, f)
	}
	inos, err := s.meta.NewInos(ctx, len(made))
	if err != nil {
		return made, err
	}
	now := s.now()
	for i, f := range made {
		f.ino, f.file.Ino = inos[i], inos[i]
		s.adoptBound(f.ino, f.body.made.tier, f.body, facts{size: f.body.size, atime: now, mtime: now, ctime: now})
		s.setOffer(f.ino, f.offer)
	}
	return made, nil
}

// blobsText lists blobs as user.hmc.blobs does.
func blobsText(blobs []Blob) string {
	sizes := make([]string, len(blobs))
	for i := range blobs {
		sizes[i] = strconv.FormatUint(blobs[i].Len, 10)
	}
	return strings.Join(sizes, ",")
}

// setOffer gives the object of a new number its offer.
func (s *Store) setOffer(ino Ino, of *offer) {
	sh := s.table.shard(ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.entries[ino].obj.offer.Store(of)
}

// putPublished makes the names. What can't be made leaves the table.
func (s *Store) putPublished(ctx context.Context, made []*newcomer, all []*Publication, errs []error) {
	files := make([]metadata.NewFile, len(made))
	for i, f := range made {
		files[i] = f.file
	}
	defer s.names.lock(metadata.PublishIno, metadata.PublishIno)()
	results, failure := s.meta.Put(ctx, metadata.PublishIno, files)
	for i, f := range made {
		err := failure
		if i < len(results) {
			err = results[i].Err
		}
		if err == nil {
			all[f.at] = f.offer.publication
			s.emit(EventPublished, f.key, results[i].Inode)
			continue
		}
		s.dropBound(f.ino)
		if errors.Is(err, metadata.ErrExist) {
			all[f.at], err = s.publishedBefore(ctx, f)
		}
		errs[f.at] = err
	}
}

// publishedBefore finds the publication that has the name of another one, which
// is meant to be the same. The caller has the lock of the names.
//
// Errors: metadata.ErrExist, ErrInconsistent.
func (s *Store) publishedBefore(ctx context.Context, f *newcomer) (*Publication, error) {
	in, err := s.meta.Lookup(ctx, metadata.PublishIno, f.key)
	if err != nil {
		return nil, err
	}
	o := s.pinLoaded(in.Ino)
	if o == nil {
		return nil, metadata.ErrExist
	}
	defer s.unpin(ctx, o, pinUse)
	of := o.offer.Load()
	if of == nil || of.publication == nil {
		return nil, metadata.ErrExist
	}
	body, ok := o.content().(*bound)
	switch h := f.body.made.holder; {
	case !ok || body.made == nil || body.made.holder != h:
		return nil, metadata.ErrExist
	case !body.isOf(h, f.blobs):
		return nil, ErrInconsistent
	}
	return of.publication, nil
}

// PublicationInfo looks a publication up.
//
// Errors: metadata.ErrNotExist, also for one that is received; ErrForbidden.
func (h *Holder) PublicationInfo(ctx context.Context, key string) (KeyInfo, error) {
	a, err := h.published(ctx, key)
	if err != nil {
		return KeyInfo{}, err
	}
	blobs, err := h.store.blobSizes(ctx, a.Ino, a.Size)
	if err != nil {
		return KeyInfo{}, fmt.Errorf("blobs of %q: %w", key, err)
	}
	return KeyInfo{Attr: a, Blobs: blobs}, nil
}

// published finds what the holder may receive under a key.
func (h *Holder) published(ctx context.Context, key string) (Attr, error) {
	if err := h.begin(); err != nil {
		return Attr{}, err
	}
	a, err := h.store.Lookup(ctx, metadata.PublishIno, key)
	switch {
	case err != nil:
		return Attr{}, err
	case a.Taken || !a.IsRegular():
		return Attr{}, errReceived(key)
	case !h.who.may(a, modeRead):
		return Attr{}, fmt.Errorf("read %q of publish: %w", key, ErrForbidden)
	}
	return a, nil
}

// Volatile says that names in a directory come and go without the kernel's
// doing, so that it must not keep them: publish/, and the directories of keyed
// objects.
func (s *Store) Volatile(dir Ino) bool {
	return dir == metadata.PublishIno || s.isKeysDir(context.Background(), dir)
}
