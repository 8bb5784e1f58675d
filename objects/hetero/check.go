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
	for i, key := range keys {
		if err := CheckKey(key); err != nil {
			return fmt.Errorf("keys[%d]: %w", i, err)
		}
	}
	if i, first, twice := repeated(keys); twice {
		return fmt.Errorf("%w: keys[%d] repeats keys[%d], %q", ErrInvalid, i, first, keys[i])
	}
	return nil
}

// fewKeys is the number of keys up to which repeated looks for repetitions without a map.
const fewKeys = 128

// repeated returns the first key that was there before, and its first place.
func repeated(keys []string) (i, first int, twice bool) {
	if len(keys) > fewKeys {
		seen := make(map[string]int, len(keys))
		for i, key := range keys {
			if first, twice = seen[key]; twice {
				return i, first, true
			}
			seen[key] = i
		}
		return 0, 0, false
	}
	// A table of the numbers of keys, plus one, at the places that the keys' bytes give them, or behind.
	var table [4 * fewKeys]uint8
	for i, key := range keys {
		place := uint32(2166136261) // FNV-1a
		for k := range len(key) {
			place = (place ^ uint32(key[k])) * 16777619
		}
		for place ^= place >> 16; ; place++ {
			at := place % uint32(len(table))
			if table[at] == 0 {
				table[at] = uint8(i + 1)
				break
			}
			if first = int(table[at]) - 1; keys[first] == key {
				return i, first, true
			}
		}
	}
	return 0, 0, false
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
