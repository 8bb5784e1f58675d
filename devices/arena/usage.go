package arena

import "github.com/hmcfs/hmcfs/devices"

// Usage is an arena's memory at one moment, in bytes.
type Usage struct {
	// Total is the maximum that can be leased: the device's total, rounded down to pages.
	Total devices.Size `json:"total"`
	// Leased is in use; Total - Leased is free to the user.
	Leased devices.Size `json:"leased"`
	// Held is allocated from the device by slabs.
	Held devices.Size `json:"held"`
	// Retained is the part of Held in slabs that are wholly free.
	Retained devices.Size `json:"retained"`
	// Slabs is the number of slabs.
	Slabs int `json:"slabs"`
	// LargestFree is the longest free run inside the slabs. A new slab may offer more.
	LargestFree devices.Size `json:"largest_free"`
	// Fragmentation is the fraction of the free bytes inside the slabs that is outside of
	// their longest run: 0 means none, values near 1 mean many small pieces.
	Fragmentation float64 `json:"fragmentation"`
}

// Usage returns the current counts of leased and held memory.
func (a *Arena) Usage() Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := Usage{Total: a.total}
	if err := a.ready(); err != nil {
		return u
	}
	u.Leased, u.Held, u.Retained = a.leased, a.held, a.retained
	u.Slabs = len(a.slabs)
	u.LargestFree = a.toBytes(a.longest())
	if free := u.Held - u.Leased; free > 0 && u.Slabs > 0 {
		u.Fragmentation = 1 - float64(u.LargestFree)/float64(free)
	}
	return u
}
