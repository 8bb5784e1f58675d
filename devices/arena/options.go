package arena

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// The defaults of Options.
const (
	DefaultPageSize = 4 * devices.KiB
	DefaultRetain   = devices.GiB

	minSlabSize = devices.MiB
	maxSlabSize = 64 * devices.MiB
	// largeSlabSize is the most on a large card, of which it is no more than a
	// largeSlabPart: what lies in two slabs takes two calls to copy, and a call
	// takes as long as such a card needs for 20 MiB.
	largeSlabSize = 256 * devices.MiB
	largeSlabPart = 256
	// maxSlabPages keeps every sum of two page counts inside 32 bits.
	maxSlabPages = 1 << 31
)

// Options shape an arena. They are read once, by New.
type Options struct {
	// PageSize is the unit of leases, a power of two. 4 KiB by default.
	PageSize devices.Size
	// SlabSize is taken from the device at a time, in bytes; larger leases
	// get a slab of their own size. By default a 16th of the device, at least
	// 1 MiB and at most 64 MiB; from 32 GiB on twice that, from 64 GiB on four
	// times. It is rounded up to pages and never exceeds what the device can
	// give.
	SlabSize devices.Size
	// Retain is the number of bytes of wholly free slabs that are kept for the next
	// lease. 1 GiB by default; less than a slab keeps none.
	Retain devices.Size
}

// withDefaults returns the options for a device, checked.
func (o Options) withDefaults(info devices.Info) (Options, error) {
	if o.PageSize == 0 {
		o.PageSize = DefaultPageSize
	}
	if o.PageSize&(o.PageSize-1) != 0 || o.PageSize > devices.GiB {
		return o, fmt.Errorf("arena on %s: page size %d is not a power of two up to 1 GiB",
			info.Name, uint64(o.PageSize))
	}
	if info.Total < o.PageSize {
		return o, fmt.Errorf("arena on %s: %v of memory is less than a page of %v",
			info.Name, info.Total, o.PageSize)
	}
	if o.SlabSize == 0 {
		o.SlabSize = min(max(info.Total/16, minSlabSize), maxSlabSize)
		for o.SlabSize < largeSlabSize && 2*o.SlabSize <= info.Total/largeSlabPart {
			o.SlabSize *= 2
		}
	}
	largest := largestSlab(info, o.PageSize)
	if largest == 0 {
		return o, fmt.Errorf("arena on %s: the largest allocation of %v is less than a page of %v",
			info.Name, info.MaxAlloc, o.PageSize)
	}
	if o.SlabSize >= largest {
		o.SlabSize = largest
	} else {
		o.SlabSize = roundUp(o.SlabSize, o.PageSize)
	}
	if o.Retain == 0 {
		o.Retain = DefaultRetain
	}
	return o, nil
}

// largestSlab is the largest page multiple that one allocation can have.
func largestSlab(info devices.Info, page devices.Size) devices.Size {
	largest := info.Total
	if info.MaxAlloc != 0 {
		largest = min(largest, info.MaxAlloc)
	}
	return min(roundDown(largest, page), maxSlabPages*page)
}

// roundUp needs n below 2^63, as every size inside a device is.
func roundUp(n, page devices.Size) devices.Size { return (n + page - 1) &^ (page - 1) }

func roundDown(n, page devices.Size) devices.Size { return n &^ (page - 1) }
