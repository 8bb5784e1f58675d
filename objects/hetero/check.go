package hetero

import (
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/metadata"
)

// CheckKeys refuses a call with invalid keys: none, too many, a key given twice, or a text
// that is no key.
//
// Errors: ErrInvalid.
func CheckKeys(keys []string) error {
	switch {
	case len(keys) == 0:
		return fmt.Errorf("%w: no keys", ErrInvalid)
	case len(keys) > MaxKeys:
		return fmt.Errorf("%w: %d keys, the maximum is %d in one call", ErrInvalid, len(keys), MaxKeys)
	}
	seen := make(map[string]int, len(keys))
	for i, key := range keys {
		if err := CheckKey(key); err != nil {
			return fmt.Errorf("keys[%d]: %w", i, err)
		}
		if first, twice := seen[key]; twice {
			return fmt.Errorf("%w: keys[%d] repeats keys[%d], %q", ErrInvalid, i, first, key)
		}
		seen[key] = i
	}
	return nil
}

// CheckKey refuses a text that is no key.
//
// Errors: ErrInvalid.
func CheckKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: a key must not be empty", ErrInvalid)
	}
	if err := metadata.ValidKey(key); err != nil {
		return fmt.Errorf("%w: %s", ErrInvalid, strings.TrimPrefix(err.Error(), "metadata: "))
	}
	return nil
}

// CheckLists is CheckKeys, and also refuses invalid lists: a number different from that of the
// keys, a list without a device or blobs, a blob without memory or of no bytes, and lists of
// several devices. partial allows source offsets; without it one that is not 0 is refused. A
// negative one is always refused.
//
// Errors: ErrInvalid.
func CheckLists(keys []string, lists []DeviceBlobList, partial bool) error {
	if len(keys) != len(lists) {
		return fmt.Errorf("%w: %d keys, but %d lists of blobs", ErrInvalid, len(keys), len(lists))
	}
	if err := CheckKeys(keys); err != nil {
		return err
	}
	for i := range lists {
		if err := lists[i].check(partial); err != nil {
			return fmt.Errorf("lists[%d] of key %q: %w", i, keys[i], err)
		}
		if lists[i].Device != lists[0].Device {
			return fmt.Errorf("%w: lists[%d] is on %s, but lists[0] is on %s; a call can use one device only",
				ErrInvalid, i, lists[i].Device, lists[0].Device)
		}
	}
	return nil
}

func (l *DeviceBlobList) check(partial bool) error {
	switch {
	case l.Device == "":
		return fmt.Errorf("%w: no device given", ErrInvalid)
	case len(l.Blobs) == 0:
		return fmt.Errorf("%w: no blobs given", ErrInvalid)
	case l.SourceOffset < 0:
		return fmt.Errorf("%w: source offset %d", ErrInvalid, l.SourceOffset)
	case l.SourceOffset != 0 && !partial:
		return fmt.Errorf("%w: source offset %d, but the call has no source", ErrInvalid, l.SourceOffset)
	}
	var sum uint64
	for i, b := range l.Blobs {
		switch {
		case b.Memory == 0:
			return fmt.Errorf("%w: blob %d has no memory", ErrInvalid, i)
		case b.Size == 0:
			return fmt.Errorf("%w: blob %d has no bytes", ErrInvalid, i)
		case uint64(b.Off)+uint64(b.Size) < uint64(b.Size), sum+uint64(b.Size) > maxSize:
			return fmt.Errorf("%w: blob %d of %d bytes at offset %d exceeds the maximum size", ErrInvalid, i, b.Size, b.Off)
		}
		sum += uint64(b.Size)
	}
	return nil
}

// maxSize is the maximum size of an object, in bytes.
const maxSize = 1<<63 - 1
