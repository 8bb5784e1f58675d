package objects

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
)

// publishFile renames a file into publish/, which offers it to one receiver. Its bytes
// stay where they are. The file must not be open or mapped, so that its bytes can't
// change.
//
// Errors: metadata.ErrPermission for a file that is in publish/ already, and for an
// exchange; metadata.ErrExist; ErrBusy for a file that is open, mapped, bound, or
// exported; those of metadata.Publish.
func (ps *publications) publishFile(ctx context.Context, r renaming) error {
	whole := context.WithoutCancel(ctx)
	if r.From == metadata.PublishIno || r.Flags&metadata.Exchange != 0 {
		return metadata.ErrPermission
	}
	in, err := ps.meta.Lookup(whole, r.From, r.Name)
	switch {
	case err != nil:
		return err
	case in.IsDir():
		return metadata.ErrIsDir
	case !in.IsRegular():
		return fmt.Errorf("only a regular file can be published: %w", ErrInvalid)
	}
	if metadata.ValidKey(r.NewName) == nil { // otherwise the records refuse it
		claimed, refused := ps.claims.claimOne(ctx, SpacePublish, r.NewName)
		if refused != nil {
			return refused
		}
		defer claimed()
	}
	end, ok := ps.table.awaitMove(ctx, in.Ino)
	if !ok {
		return fmt.Errorf("the file is open; close it first: %w", ErrBusy)
	}
	defer end()
	o, err := ps.table.pin(ctx, in.Ino, pinUse)
	if err != nil {
		return err
	}
	defer ps.table.unpin(whole, o, pinUse)
	// Calls that change, export or bind the file have the lane, and see the offer
	// afterwards.
	return o.exclusively(ctx, func() error {
		if err := o.mayPublish(ctx); err != nil {
			return err
		}
		return ps.publishName(whole, r, o)
	})
}

// mayPublish fails while others can access the bytes. The caller has the lane, and
// keeps the object from being opened.
func (o *object) mayPublish(ctx context.Context) error {
	if err := o.notOffered(); err != nil {
		return err
	}
	if isBound(o.content()) {
		return fmt.Errorf("it is memory of another process and can't be published: %w", ErrBusy)
	}
	if length := o.exported(); length > 0 {
		return fmt.Errorf("can't publish an object while %d of its bytes are exported: %w", length, ErrBusy)
	}
	if f := o.content().Backing(); f != nil {
		return awaitAlone(ctx, f)
	}
	return nil
}

// publishName moves the name of an object that may be published.
func (ps *publications) publishName(ctx context.Context, r renaming, o *object) error {
	defer ps.names.lock(r.From, metadata.PublishIno)()
	now, err := ps.meta.Lookup(ctx, r.From, r.Name)
	if err == nil && now.Ino != o.ino {
		err = fmt.Errorf("%q was replaced in the meantime: %w", r.Name, metadata.ErrNotExist)
	}
	if err == nil {
		err = ps.names.mayTake(ctx, r.who, r.From, r.Name)
	}
	if err != nil {
		return err
	}
	parts, err := ps.meta.PartKeys(ctx, o.ino)
	if err != nil {
		return err
	}
	// Before its record is written: the offer is found as soon as the name is.
	o.offer.Store(newOffer(r.NewName, false, nil))
	in, err := ps.meta.Publish(ctx, r.From, r.Name, r.NewName)
	if err != nil {
		o.offer.Store(nil)
		return err
	}
	if err = o.overlay(&in); err != nil {
		ps.table.warn("could not determine the size of a publication", err)
	}
	if now.Key != "" {
		ps.events.emit(EventRemoved, now.Key, &in)
	}
	ps.events.eachTensorKey(EventRemoved, parts, in)
	ps.events.emit(EventPublished, r.NewName, &in)
	return nil
}

// awaitAlone fails while another process has a host file open or mapped: a mapping
// remains when its handle is closed. Like awaitMove, it waits for one that is just
// being closed.
func awaitAlone(ctx context.Context, f *os.File) error {
	alone, err := awaitClose(ctx, func() (bool, error) { return isAlone(f) })
	if err == nil && !alone {
		err = fmt.Errorf("the file is mapped; unmap it first: %w", ErrBusy)
	}
	return err
}

// isAlone asks the kernel, which grants a write lease only if nothing else has the file
// open or mapped.
func isAlone(f *os.File) (alone bool, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	failure := raw.Control(func(fd uintptr) {
		if _, err = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_WRLCK); err == nil {
			_, err = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
			alone = true
		}
	})
	if errors.Is(err, unix.EAGAIN) {
		return false, failure
	}
	if err = errors.Join(err, failure); err != nil {
		return false, fmt.Errorf("check whether the file is open or mapped: %w", err)
	}
	return alone, nil
}
