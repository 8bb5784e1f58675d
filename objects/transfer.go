package objects

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/objects/content"
)

const (
	// transferWorkers is the maximum number of stretches of one call that are copied
	// concurrently: while a device copies the bytes of one, the host finds or writes those
	// of others.
	transferWorkers = 4
	// transferInline is the number of bytes up to which the caller copies alone, since
	// starting other goroutines would cost more.
	transferInline = 512 << 10
)

// stretch is a run of bytes that is contiguous both in a region and in an object.
type stretch struct {
	region *Region
	// at is its offset in the region, off the one in the object.
	at, off, n uint64
}

// stretchesOf joins blobs that are adjacent both in their region and in the object.
// place returns the offset of a blob in the object.
func stretchesOf(blobs []Blob, place func(i int) uint64) []stretch {
	all := make([]stretch, 0, min(len(blobs), 16))
	for i, b := range blobs {
		off := place(i)
		if k := len(all) - 1; k >= 0 {
			last := &all[k]
			if last.region == b.Region && last.at+last.n == b.Off && last.off+last.n == off {
				last.n += b.Len
				continue
			}
		}
		all = append(all, stretch{region: b.Region, at: b.Off, off: off, n: b.Len})
	}
	return all
}

func sizesOf(blobs []Blob) []uint64 {
	sizes := make([]uint64, len(blobs))
	for i := range blobs {
		sizes[i] = blobs[i].Len
	}
	return sizes
}

// checkBlobRanges rejects invalid blobs: an empty list, a blob without a region or
// bytes, or beyond its region, or more bytes in total than an object can have.
func checkBlobRanges(blobs []Blob) (total uint64, err error) {
	if len(blobs) == 0 {
		return 0, fmt.Errorf("no blobs given: %w", ErrInvalid)
	}
	for i, b := range blobs {
		switch {
		case b.Region == nil || b.Len == 0:
			return 0, fmt.Errorf("blob %d has no memory: %w", i, ErrInvalid)
		case b.Off > b.Region.Size() || b.Len > b.Region.Size()-b.Off:
			return 0, fmt.Errorf("blob %d of %d bytes at offset %d exceeds its memory of %d bytes: %w", i, b.Len, b.Off, b.Region.Size(), ErrInvalid)
		case b.Len > maxSize-total:
			return 0, fmt.Errorf("the blobs up to number %d: %w", i, ErrTooLarge)
		}
		total += b.Len
	}
	return total, nil
}

// copyAll is content.Walk for a range that must exist completely.
func copyAll(ctx context.Context, look func(off, n uint64) (content.Range, error), off, n uint64, put func(content.Piece) error) error {
	var done uint64
	err := content.Walk(ctx, look, off, n, func(at content.Piece) error {
		done += at.N
		return put(at)
	})
	if err == nil && done < n {
		err = fmt.Errorf("the source was truncated by %d bytes in the meantime: %w", n-done, io.ErrUnexpectedEOF)
	}
	return err
}

// Parallel calls fn for 0 to n-1, in at most workers concurrent goroutines, one of
// which is the caller's. It stops at the first error and returns it.
func Parallel(ctx context.Context, n, workers int, fn func(ctx context.Context, i int) error) error {
	workers = min(n, workers)
	if workers <= 1 {
		for i := range n {
			if err := fn(ctx, i); err != nil {
				return err
			}
		}
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var next atomic.Int64
	var once sync.Once
	var failure error
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if err := fn(ctx, i); err != nil {
				once.Do(func() { failure = err })
				next.Store(int64(n))
				cancel()
				return
			}
		}
	}
	var others sync.WaitGroup
	for range workers - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	return failure
}
