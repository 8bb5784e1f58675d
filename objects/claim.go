package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/transport"
)

// Claimed is a publication that the claimant is about to receive: nothing else can
// receive it until Take or GiveBack, of which exactly one is called, once. Its methods
// are called by one goroutine at a time.
type Claimed struct {
	holder *Holder
	key    string
	obj    *object
	offer  *offer
	me     claimant
}

// Claim begins to receive a publication. It waits for another receiver, which may fail,
// but for another caller of Claim only with wait.
//
// Errors: metadata.ErrNotExist, also if another claimant has received it, or it was
// withdrawn; ErrBusy, without wait, while another caller of Claim has it; ErrLost if
// its publisher has ended; ErrForbidden; ErrClosed; the context's.
func (h *Holder) Claim(ctx context.Context, key string, wait bool) (*Claimed, error) {
	return h.claim(ctx, key, claimant{reserves: true}, claimWait(wait))
}

func (h *Holder) claim(ctx context.Context, key string, me claimant, p claimWait) (*Claimed, error) {
	a, err := h.published(ctx, key)
	if err != nil {
		return nil, err
	}
	s := h.store
	o, err := s.table.pin(ctx, a.Ino, pinUse)
	if err != nil {
		return nil, err
	}
	c := &Claimed{holder: h, key: key, obj: o, offer: o.offer.Load(), me: me}
	if c.offer == nil {
		err = errReceived(key)
	} else {
		_, err = c.offer.claim(ctx, &c.me, p)
	}
	if err != nil {
		s.table.unpin(context.WithoutCancel(ctx), o, pinUse)
		return nil, err
	}
	return c, nil
}

// Blobs returns the sizes of the publication's blobs.
//
// Errors: those of Claim.
func (c *Claimed) Blobs(ctx context.Context) ([]uint64, error) {
	noted, err := c.noted(ctx)
	if err != nil {
		return nil, err
	}
	size, err := c.obj.end()
	if err != nil {
		return nil, err
	}
	return sizesIn(noted, size)
}

// noted reads user.hmc.blobs; it returns "" for a single blob. The attribute is removed
// with the file's records, and those with its name.
func (c *Claimed) noted(ctx context.Context) (string, error) {
	s := c.holder.store
	text, err := s.meta.GetXattr(ctx, c.obj.ino, xattrBlobs)
	switch {
	case errors.Is(err, metadata.ErrNoXattr):
		return "", nil
	case errors.Is(err, metadata.ErrNotExist):
		// A removal of the name records its cause before it releases the lock.
		s.names.lock(metadata.PublishIno, metadata.PublishIno)()
		return "", cmp.Or(c.offer.holds(&c.me), err)
	}
	return string(text), err
}

// Fetch copies the publication's bytes from off on into a blob. It may be called any
// number of times.
//
// Errors: *ShapeError for more bytes than there are from off on; those of Claim and of
// the copy.
func (c *Claimed) Fetch(ctx context.Context, to Blob, off uint64) error {
	sc := Scatter{Keyed: Keyed{Key: c.key, Blobs: []Blob{to}}, Offset: off}
	_, err := checkBlobRanges(sc.Blobs)
	if err == nil {
		err = cmp.Or(c.holder.begin(), c.offer.holds(&c.me))
	}
	if err == nil {
		err = c.obj.scatter(ctx, sc, "")
	}
	if err != nil {
		return fmt.Errorf("read publication %q: %w", c.key, err)
	}
	return nil
}

// Open opens the publication's bytes, to be read any number of times. The file must be
// closed before Take or GiveBack is called.
func (c *Claimed) Open(ctx context.Context) (*File, error) {
	s := c.holder.store
	o, err := s.table.pin(ctx, c.obj.ino, pinOpen)
	if err != nil {
		return nil, fmt.Errorf("open publication %q: %w", c.key, err)
	}
	return &File{store: s, obj: o}, nil
}

// Take marks the publication as received: its name is removed, and its publisher
// notified. If that fails, or the context or the holder has ended before, the claim is
// returned as by GiveBack.
//
// Errors: those of Claim.
func (c *Claimed) Take(ctx context.Context) error { return c.take(ctx, c.holder.receipt(ctx, c.key)) }

// TakeFor is Take for a call of another node. The next daemon finds it by ReceivedBy.
func (c *Claimed) TakeFor(ctx context.Context, call CallID) error {
	receipt := ""
	if call != (CallID{}) && c.holder.store.lasting {
		receipt = receiptElsewhere(call)
	}
	return c.take(ctx, receipt)
}

func (c *Claimed) take(ctx context.Context, receipt string) error {
	err := c.holder.store.publications.removeOffered(ctx, c.obj, c.offer, EventConsumed, receipt, func() error {
		return cmp.Or(ctx.Err(), c.holder.begin(), c.offer.holds(&c.me))
	})
	if err != nil {
		return c.fail(ctx, err)
	}
	c.leave(ctx)
	return nil
}

// GiveBack returns the claim: the publication is offered again, as before.
func (c *Claimed) GiveBack(ctx context.Context) {
	c.holder.store.publications.giveBack(ctx, c.obj, c.offer, &c.me)
	c.leave(ctx)
}

// fail returns the claim, and returns the reason for the failure.
func (c *Claimed) fail(ctx context.Context, err error) error {
	c.holder.store.publications.giveBack(ctx, c.obj, c.offer, &c.me)
	// The end of the offer explains more than the error that the copy has met.
	err = cmp.Or(c.offer.untaken(), err)
	c.leave(ctx)
	return err
}

func (c *Claimed) leave(ctx context.Context) {
	c.holder.store.table.unpin(context.WithoutCancel(ctx), c.obj, pinUse)
}

// Reservation is a publication, of this store or of another node's, that only one
// holder may receive until Take or GiveBack, of which exactly one is called, once. Its
// methods are called by one goroutine at a time.
type Reservation interface {
	// Blobs returns the sizes of the publication's blobs.
	Blobs(ctx context.Context) ([]uint64, error)
	// Fetch copies the publication's bytes from off on into a blob, any number of times.
	Fetch(ctx context.Context, to Blob, off uint64) error
	// Take marks the publication as received.
	Take(ctx context.Context) error
	// GiveBack returns the claim: the publication is offered again, as before.
	GiveBack(ctx context.Context)
}

var _ Reservation = (*Claimed)(nil)

// Source is a sequence of bytes that this store does not have: blobs, concatenated.
type Source struct {
	Blobs []uint64
	// Span returns a range of them.
	Span func(off, n uint64) transport.Span
}

// Fill copies a source into blobs, as Scatter does with a key's bytes.
//
// Errors: *ShapeError; ErrUnsupported for a replica, which only keys of this store can
// have; ErrInvalid; ErrLost if the memory of the blobs has ended; ErrClosed; those of
// the copy.
func (h *Holder) Fill(ctx context.Context, sc Scatter, src Source) error {
	_, err := checkBlobRanges(sc.Blobs)
	if err == nil {
		err = h.begin()
	}
	if err == nil {
		err = sc.fits(src.Blobs)
	}
	if err == nil && sc.Replica {
		err = fmt.Errorf("can't make a replica of memory of another node: %w", ErrUnsupported)
	}
	if err != nil {
		return fmt.Errorf("key %q: %w", sc.Key, err)
	}
	parts, workers := sc.parts(src.Blobs)
	err = Parallel(ctx, len(parts), workers, func(ctx context.Context, i int) error {
		part := parts[i]
		return part.region.write(ctx, part.at, src.Span(part.off, part.n))
	})
	if err != nil {
		return fmt.Errorf("read key %q: %w", sc.Key, err)
	}
	return nil
}

// parts returns the stretches of a scatter from a source of blobs, and how many of them
// are copied at a time.
func (sc *Scatter) parts(want []uint64) (parts []stretch, workers int) {
	var begin, total uint64
	parts = stretchesOf(sc.Blobs, func(i int) uint64 {
		off := begin + sc.Offset
		begin += want[i]
		return off
	})
	for i := range parts {
		total += parts[i].n
	}
	return parts, int(min(total/transferInline, transferWorkers-1)) + 1
}

// Caller returns the user for which the holder acts.
func (h *Holder) Caller() Caller { return h.who }
