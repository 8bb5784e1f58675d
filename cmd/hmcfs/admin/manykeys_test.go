package admin_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestManyKeysOverThemselves reads keys, few and many in one call, into memory that overlaps theirs: within one registration, and
// in a second one of the same memory, which the daemon has at another address. Each gets the bytes that its key had before.
func TestManyKeysOverThemselves(t *testing.T) {
	const size, room, most = 8192, 16384, 40
	r := newStoreRig(t)
	s := r.open(t)
	for _, n := range []int{2, most} {
		for _, shift := range []int{-500, 500, -1, 4096} {
			t.Run(fmt.Sprintf("%d keys by %d bytes", n, shift), func(t *testing.T) {
				for _, second := range []bool{false, true} {
					f, err := share.Sealed("overlap", most*room)
					fatal(t, err)
					defer func() { _ = f.Close() }()
					want := kit.Bytes(11, 0, most*room)
					_, err = f.WriteAt(want, 0)
					fatal(t, err)
					id := registeredWith(t, s, f, most*room)
					to := id
					if second {
						to = registeredWith(t, s, f, most*room)
					}
					var keys []string
					var src, dst []hetero.DeviceBlobList
					for i := range n {
						from := i*room + 1000
						keys = append(keys, fmt.Sprintf("over-%d-%d-%v-%d", n, shift, second, i))
						src = append(src, hetero.DeviceBlobList{Device: "host", Blobs: []hetero.Blob{{Memory: id, Off: devices.Offset(from), Size: size}}})
						dst = append(dst, hetero.DeviceBlobList{Device: "host", Blobs: []hetero.Blob{{Memory: to, Off: devices.Offset(from + shift), Size: size}}})
						copy(want[from+shift:from+shift+size], want[from:from+size])
					}
					set, err := s.DevMSet(t.Context(), keys, src)
					fatal(t, errors.Join(err, set.Err()))
					got, err := s.DevMGet(t.Context(), keys, dst, hetero.GetOptions{})
					fatal(t, errors.Join(err, got.Err()))
					all, err := io.ReadAll(io.NewSectionReader(f, 0, most*room))
					if err != nil || !bytes.Equal(all, want) {
						t.Errorf("in a second registration %v: other bytes, %v", second, err)
					}
				}
			})
		}
	}
}
