package objects

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

// KeyInfo describes a key, or a publication.
type KeyInfo struct {
	Attr Attr
	// Blobs are the sizes of the blobs, in order: those of user.hmc.blobs, or the size of
	// the object if it is a single blob.
	Blobs []uint64
	// Off is the offset in the object at which the blobs begin: not 0 for a tensor of a file.
	Off uint64
}

// KeyInfo looks a key up.
//
// Errors: metadata.ErrNotExist, also for a key that has expired; ErrForbidden for an
// object that the holder's user may not read.
func (h *Holder) KeyInfo(ctx context.Context, key string) (KeyInfo, error) {
	if err := h.begin(); err != nil {
		return KeyInfo{}, err
	}
	s := h.store
	for {
		in, err := s.index.findBlobs(ctx, key)
		if err != nil {
			return KeyInfo{}, err
		}
		if err = s.access.mayUse(ctx, h.who, &in.Inode, PermRead); err != nil {
			return KeyInfo{}, fmt.Errorf("look up key %q: %w", key, err)
		}
		a, err := s.attrs.of(ctx, in.Inode)
		if errors.Is(err, metadata.ErrNotExist) {
			continue // it was replaced or removed; look the key up again
		}
		info := KeyInfo{Attr: a}
		switch {
		case err != nil:
		case in.tensor != "":
			err = s.describeTensor(ctx, in, &info)
		default:
			info.Blobs, err = sizesIn(in.blobs, a.Size)
		}
		if err != nil {
			return KeyInfo{}, fmt.Errorf("look up key %q: %w", key, err)
		}
		return info, nil
	}
}

// KeyThere reports whether a key names an object whose bytes exist. It checks no
// permission, since all users may list keys/.
func (s *Store) KeyThere(ctx context.Context, key string) (bool, error) {
	in, err := s.index.find(ctx, key)
	if errors.Is(err, metadata.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if _, gone := s.tiers.named(in.Device); gone != nil || s.index.lostNow(in.Inode) {
		return false, nil
	}
	if in.tensor == "" {
		return true, nil
	}
	if _, err = s.tensorOf(ctx, in); errors.Is(err, metadata.ErrNotExist) || errors.Is(err, ErrLost) {
		return false, nil
	}
	return err == nil, err
}

// known is findBlobs for an inode of which all of that was read lately. The caller must not change
// it.
func (ix *keyIndex) known(key string) (in *metadata.Inode, blobs string, ok bool) {
	in, blobs, ok = metadata.KnownKey(ix.meta, key, xattrBlobs)
	return in, blobs, ok && (in.Expires == metadata.Timespec{} || !ix.isOver(*in))
}

// findBlobs is find, and also returns the object's user.hmc.blobs. That is removed with
// the records, so it is read while they exist.
func (ix *keyIndex) findBlobs(ctx context.Context, key string) (carrier, error) {
	for {
		if in, text, ok := ix.known(key); ok {
			return carrier{Inode: *in, blobs: text}, nil
		}
		in, err := ix.find(ctx, key)
		if err != nil || in.tensor != "" {
			return in, err
		}
		text, err := ix.meta.GetXattr(ctx, in.Ino, xattrBlobs)
		switch {
		case errors.Is(err, metadata.ErrNotExist):
			continue // it was replaced or removed; look the key up again
		case err != nil && !errors.Is(err, metadata.ErrNoXattr):
			return in, fmt.Errorf("blobs of key %q: %w", key, err)
		}
		in.blobs = string(text)
		return in, nil
	}
}

// sizesIn returns the sizes of an object's blobs: those in text, if they fit the
// object's size; otherwise the object is one blob.
func sizesIn(text string, size uint64) ([]uint64, error) {
	if text == "" || checkBlobs(text, size) != nil {
		return []uint64{size}, nil
	}
	return parseSizes(text)
}

// blobsText returns the value of user.hmc.blobs for sizes; nil for a single blob, which
// is the whole object.
//
// Errors: metadata.ErrTooLarge for more than an attribute can hold.
func blobsText(sizes []uint64) ([]byte, error) {
	if len(sizes) == 1 {
		return nil, nil
	}
	text := tensors.NumbersText(sizes)
	if len(text) > metadata.MaxXattr {
		return nil, fmt.Errorf("the text of the sizes of %d blobs has %d bytes, the maximum is %d: %w",
			len(sizes), len(text), metadata.MaxXattr, metadata.ErrTooLarge)
	}
	return []byte(text), nil
}

// carrier returns what has a key of a space; for keys it is holder.
func (ix *keyIndex) carrier(ctx context.Context, space KeySpace, key string) (carrier, error) {
	if space == SpacePublish {
		in, err := ix.meta.Lookup(ctx, metadata.PublishIno, key)
		return carrier{Inode: in}, err
	}
	return ix.holder(ctx, key)
}

// shows reports whether a key is visible on this node. The key of a lost object is not:
// the object is replaced if the key is set, here or on another node. The caller has
// claims.mu.
func (ix *keyIndex) shows(ctx context.Context, space KeySpace, key string) bool {
	in, err := ix.carrier(ctx, space, key)
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		// It is released later, or with our incarnation.
		ix.log.Warn("could not determine whether a key is in use", zap.String("key", key), zap.Error(err))
		return true
	}
	return err == nil && (space == SpacePublish || !ix.lostNow(in.Inode))
}

// KeyMade returns the time at which the object that has a key, or is published under
// it, was made.
//
// Errors: metadata.ErrNotExist, also for a key whose object is lost.
func (s *Store) KeyMade(ctx context.Context, space KeySpace, key string) (metadata.Timespec, error) {
	in, err := s.index.carrier(ctx, space, key)
	if space == SpaceKeys && err == nil && s.index.isVacant(in.Inode) {
		err = metadata.ErrNotExist
	}
	if err != nil {
		return metadata.Timespec{}, fmt.Errorf("creation time of %q: %w", key, err)
	}
	return in.Btime, nil
}
