package objects

import "context"

// Publication is what a holder has offered under a key.
type Publication struct{}

// Done is closed when it has been received whole, or withdrawn.
func (p *Publication) Done() <-chan struct{} { return nil }

// Err is nil for one that has been received, and ErrWithdrawn else. It is asked
// when Done is closed.
func (p *Publication) Err() error { return nil }

// Publish offers memory under keys, each to the first who receives it: an
// object of each key is made in publish/.
//
// Errors by key: metadata.ErrExist when another has published the key;
// ErrInconsistent when this holder has, with other blobs (with the same ones it
// is the same publication); ErrUnsupported for a region that is a file, which
// is renamed into publish/ instead.
func (h *Holder) Publish(ctx context.Context, set []Keyed) ([]*Publication, []error) {
	return make([]*Publication, len(set)), make([]error, len(set))
}

// Receive copies a publication into blobs of the same number and sizes, removes
// it, and tells its publisher. Until it returns nobody else receives it; when
// it fails the publication is as it was.
//
// Errors: metadata.ErrNotExist, also when somebody else is about to receive it
// and does; *ShapeError; ErrLost when the publisher has ended.
func (h *Holder) Receive(ctx context.Context, k Keyed) error { return notBuilt(ctx) }

// PublicationInfo looks a publication up.
//
// Errors: metadata.ErrNotExist; ErrForbidden.
func (h *Holder) PublicationInfo(ctx context.Context, key string) (KeyInfo, error) {
	return KeyInfo{}, notBuilt(ctx)
}

// AwaitPublication returns when something is published under a key that can be
// received, or with the context's error.
func (s *Store) AwaitPublication(ctx context.Context, key string) error { return notBuilt(ctx) }

// Volatile says that names in a directory come and go without the kernel's
// doing, so that it must not keep them: publish/, and the directories of keyed
// objects.
func (s *Store) Volatile(dir Ino) bool { return false }

// Published says that the file is in publish/: who has read every byte of it
// has received it.
func (f *File) Published() bool { return false }

// Deliver notes that n bytes at off are about to be given to the reader. With
// the last of those that he has not read yet the file is his, and gone when he
// closes it; who comes second gets an error, and none of the bytes. It does
// nothing for a file that is not published.
//
// Errors: metadata.ErrNotExist when somebody else has received the file.
func (f *File) Deliver(ctx context.Context, off uint64, n int) error { return nil }
