package arena

import (
	"cmp"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// The defaults of Options.
const (
	DefaultPageSize = 4 * devices.KiB
	DefaultRetain   = devices.GiB

	minSlabSize = devices.MiB
	maxSlabSize = 64 * devices.MiB
	// largeSlabSize is the maximum on a large card, where it is also at most one
	// largeSlabPart-th: a range in two slabs takes two calls to copy, and a call takes as
	// long as such a card needs to copy 20 MiB.
	largeSlabSize = 256 * devices.MiB
	largeSlabPart = 256
	// maxSlabPages ensures that the sum of two page counts fits into 32 bits.
	maxSlabPages = 1 << 31
)

// Options configure an arena. They are read once, by New.
type Options struct {
	// PageSize is the unit of leases, a power of two. 4 KiB by default.
	PageSize devices.Size
	// SlabSize is the number of bytes allocated from the device at a time; larger leases
	// get a slab of their own size. By default a 16th of the device, at least 1 MiB and at
	// most 64 MiB; on devices of 32 GiB and more 128 MiB, of 64 GiB and more 256 MiB. It is
	// rounded up to pages and never exceeds the device's maximum.
	SlabSize devices.Size
	// Retain is the number of bytes of wholly free slabs that are kept for later leases. 1
	// GiB by default; less than a slab keeps none.
	Retain devices.Size
	// Keeper, if it is not nil, makes the slabs outlive the process: see Restore. It needs a
	// device that is devices.Lasting.
	Keeper devices.DescriptorStore
	// Unkept is told why a slab can't be kept. If it is nil, such a slab is not allocated.
	Unkept func(error)
}

// withDefaults validates the options and fills in the defaults for a device whose slabs
// consist of whole units, a multiple of the page size; 0 is a page.
func (o Options) withDefaults(info devices.Info, unit devices.Size) (Options, error) {
	o.PageSize = cmp.Or(o.PageSize, DefaultPageSize)
	o.Retain = cmp.Or(o.Retain, DefaultRetain)
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
	unit = max(unit, o.PageSize)
	largest := largestSlab(info, o.PageSize, unit)
	if largest == 0 {
		return o, fmt.Errorf("arena on %s: the largest allocation of %v is less than a page of %v",
			info.Name, min(info.Total, cmp.Or(info.MaxAlloc, info.Total)), unit)
	}
	if o.SlabSize >= largest {
		o.SlabSize = largest
	} else {
		o.SlabSize = wholeUnits(o.SlabSize, unit)
	}
	return o, nil
}

// slabUnit returns the unit of slabs, a multiple of the page size. own is set if the device
// keeps its own memory, not files of the host.
func (o Options) slabUnit(dev devices.Device) (unit devices.Size, own bool) {
	page := cmp.Or(o.PageSize, DefaultPageSize)
	if maker, ok := devices.LastingMakerOf(dev); ok && o.Keeper != nil {
		return wholeUnits(maker.LastingUnit(), page), true
	}
	return page, false
}

// largestSlab returns the largest multiple of the unit that one allocation can have.
func largestSlab(info devices.Info, page, unit devices.Size) devices.Size {
	largest := min(info.Total, maxSlabPages*page)
	if info.MaxAlloc != 0 {
		largest = min(largest, info.MaxAlloc)
	}
	return largest - largest%unit
}

// wholeUnits rounds n, below 2^63, up to a multiple of a unit that need not be a power of two.
func wholeUnits(n, unit devices.Size) devices.Size {
	if over := n % unit; over != 0 {
		n += unit - over
	}
	return n
}

// roundUp requires n below 2^63, which holds for every size inside a device.
func roundUp(n, page devices.Size) devices.Size { return (n + page - 1) &^ (page - 1) }

func roundDown(n, page devices.Size) devices.Size { return n &^ (page - 1) }
