package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// publishChunk is the number of keys that are published at a time under the lock of the
// names.
const publishChunk = 256

// publications makes names in publish/, and removes them with their offers.
type publications struct {
	meta   *metadata.Store
	log    *zap.Logger
	tiers  tiers
	table  *table
	claims *claims
	events *events
	names  *names
	moves  *moves
}

// Publish offers memory under keys, each to the first receiver: it creates an object
// for each key in publish/. The results have the order of set; a key has a signal or an
// error. The signal is set when the publication ends: with nil if it was received, and
// with ErrWithdrawn otherwise.
//
// Errors by key: metadata.ErrExist if the key is published already; ErrInconsistent if
// this holder has published it with other blobs (with the same ones, the result is the
// signal of that publication); ErrUnsupported for a region that is a file, which is renamed into
// publish/ instead; ErrForbidden for a user that may not make names in publish/;
// metadata.ErrInvalidKey; ErrInvalid; ErrLost for memory that has ended; ErrClosed.
func (h *Holder) Publish(ctx context.Context, set []Keyed) ([]*devices.Signal, []error) {
	all, errs := make([]*devices.Signal, len(set)), make([]error, len(set))
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

// mayPublish checks whether the holder's user may make names in publish/.
func (h *Holder) mayPublish(ctx context.Context) error {
	if err := cmp.Or(ctx.Err(), h.begin()); err != nil {
		return err
	}
	dir, err := h.store.attrs.get(ctx, metadata.PublishIno)
	if err == nil && !h.who.May(&dir.Inode, PermWrite) {
		err = fmt.Errorf("user %d has no permission to publish: %w", h.who.UID, ErrForbidden)
	}
	return err
}

// offering is an object that is about to be published.
type offering struct {
	at    int // index in the set
	body  *content.Bound
	file  metadata.NewFile
	offer *offer
}

func (h *Holder) publish(ctx context.Context, set []Keyed, all []*devices.Signal, errs []error) {
	var made []*offering
	for i := range set {
		n, err := h.prepareOffering(ctx, &set[i])
		if err != nil {
			errs[i] = err
			continue
		}
		n.at = i
		made = append(made, n)
	}
	s := h.store
	made, claimed := claimOfferings(ctx, s.claims, made, errs)
	defer claimed()
	inos, err := s.meta.NewInos(ctx, len(made))
	now := s.meta.Now()
	for i, n := range made {
		if errs[n.at] = err; err == nil {
			n.file.Ino = inos[i]
			// Both the object and its offer are found as soon as the name is.
			o := s.table.adoptBound(inos[i], sourceOf(n.body).tier, n.body, facts{size: n.body.Length(), atime: now, mtime: now, ctime: now})
			o.offer.Store(n.offer)
		}
	}
	if err == nil {
		s.publications.putPublished(context.WithoutCancel(ctx), h, made, all, errs)
	}
	for _, n := range made {
		if all[n.at] == n.offer.publication {
			sourceOf(n.body).attend(n.file.Ino, s.endOf(n.offer)) //nolint:contextcheck // the end of the memory is independent of this call
		}
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("publish %q: %w", set[i].Key, err)
		}
	}
}

// claimOfferings requests the keys of offerings, records the results in errs, and returns those whose
// keys were granted.
func claimOfferings(ctx context.Context, c *claims, all []*offering, errs []error) (granted []*offering, done func()) {
	keys := make([]string, len(all))
	for i, n := range all {
		keys[i] = n.file.Name
	}
	refused, done := c.claim(ctx, SpacePublish, keys)
	for i, n := range all {
		if errs[n.at] = refused[i]; refused[i] == nil {
			granted = append(granted, n)
		}
	}
	return granted, done
}

// prepareOffering makes the content of a key, and the description of its record.
func (h *Holder) prepareOffering(ctx context.Context, k *Keyed) (*offering, error) {
	if err := metadata.ValidKey(k.Key); err != nil {
		return nil, err
	}
	body, t, err := h.store.bindings.blobContent(h, k.Blobs)
	if err != nil {
		return nil, err
	}
	n := &offering{body: body, offer: newOffer(k.Key, false, devices.NewSignal())}
	n.offer.receipt = h.receipt(ctx, k.Key)
	err = h.describe(k, body, &n.file)
	n.file.Device = t.Name
	n.file.Binding = h.bindingOf(ctx, k.Blobs)
	return n, err
}

// putPublished makes the names. Objects whose name can't be made are removed from the
// table.
func (ps *publications) putPublished(ctx context.Context, h *Holder, made []*offering, all []*devices.Signal, errs []error) {
	defer ps.names.lock(metadata.PublishIno, metadata.PublishIno)() // under which receipts are noted
	made = ps.unreceived(ctx, h, made, all)
	files := make([]metadata.NewFile, len(made))
	for i, n := range made {
		files[i] = n.file
	}
	results, failure := ps.meta.Put(ctx, metadata.PublishIno, files)
	for i, n := range made {
		r := putResult(results, i, failure)
		if r.Err == nil {
			all[n.at] = n.offer.publication
			ps.events.emit(EventPublished, n.file.Name, r.Inode)
			continue
		}
		ps.table.dropBound(n.file.Ino)
		if errors.Is(r.Err, metadata.ErrExist) {
			all[n.at], r.Err = ps.publishedBefore(ctx, n)
		}
		errs[n.at] = r.Err
	}
}

// unreceived returns the publications that were not received before the call was asked again.
func (ps *publications) unreceived(ctx context.Context, h *Holder, made []*offering, all []*devices.Signal) []*offering {
	if !AskedAgain(ctx) {
		return made
	}
	return slices.DeleteFunc(slices.Clone(made), func(n *offering) bool {
		done := h.Received(ctx, n.file.Name)
		if done {
			ps.table.dropBound(n.file.Ino)
			all[n.at] = devices.NewSignal()
			all[n.at].Set(nil)
		}
		return done
	})
}

// publishedBefore finds the publication that already has the name of n, if it is the
// same publication. The caller has the lock of the names.
//
// Errors: metadata.ErrExist, ErrInconsistent.
func (ps *publications) publishedBefore(ctx context.Context, n *offering) (*devices.Signal, error) {
	in, err := ps.meta.Lookup(ctx, metadata.PublishIno, n.file.Name)
	if err != nil {
		return nil, err
	}
	o := ps.table.peek(in.Ino)
	if o == nil {
		return nil, metadata.ErrExist
	}
	of := o.offer.Load()
	if of == nil || of.publication == nil {
		return nil, metadata.ErrExist
	}
	made := sourceOf(n.body)
	if err := o.checkMadeOf(made.holder.Load(), made.blobs); err != nil {
		return nil, err
	}
	return of.publication, nil
}

// PublicationInfo looks up a publication.
//
// Errors: metadata.ErrNotExist, also for a publication that was received; ErrForbidden.
func (h *Holder) PublicationInfo(ctx context.Context, key string) (KeyInfo, error) {
	a, err := h.published(ctx, key)
	if err != nil {
		return KeyInfo{}, err
	}
	noted, err := h.store.meta.GetXattr(ctx, a.Ino, xattrBlobs)
	if err != nil && !errors.Is(err, metadata.ErrNoXattr) {
		return KeyInfo{}, fmt.Errorf("blobs of publication %q: %w", key, err)
	}
	blobs, err := sizesIn(string(noted), a.Size)
	if err != nil {
		return KeyInfo{}, fmt.Errorf("blobs of publication %q: %w", key, err)
	}
	return KeyInfo{Attr: a, Blobs: blobs}, nil
}

// published finds the publication under a key, if the holder may receive it.
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
	}
	if err = mayReceive(h.who, a.Inode); err != nil {
		return Attr{}, fmt.Errorf("read publication %q: %w", key, err)
	}
	return a, nil
}
