package content

import (
	"errors"
	"hash/fnv"
	"os"

	"github.com/hmcfs/hmcfs/devices"
)

// maxSlabs bounds the number of descriptors that are kept for the slabs of one device.
const maxSlabs = 1 << 14

// keptSlabs keeps the slabs of a tier's arena, and lists them in the table, so that a slab that is missing later is noticed: its pages would read as zeros. A slab is in
// the list only while the keeper has it.
type keptSlabs struct{ of *keptTier }

var _ devices.DescriptorStore = keptSlabs{}

// Keep implements devices.DescriptorStore.
func (s keptSlabs) Keep(name string, f *os.File) error {
	if err := s.of.Keeper.Keep(name, f); err != nil {
		return err
	}
	k := s.of
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now == nil {
		return nil
	}
	if k.now.list(name) {
		return nil
	}
	return errors.Join(errors.New("too many slabs"), k.Keeper.Drop(name))
}

// Kept implements devices.DescriptorStore.
func (s keptSlabs) Kept(prefix string) (map[string]*os.File, error) { return s.of.Keeper.Kept(prefix) }

// Drop implements devices.DescriptorStore.
func (s keptSlabs) Drop(name string) error {
	k := s.of
	k.mu.Lock()
	if k.now != nil {
		k.now.unlist(name)
	}
	k.mu.Unlock()
	return k.Keeper.Drop(name)
}

// slabWord returns the number of the word that lists the first slab.
func (kt *keptTable) slabWord() int { return (kt.size + 1) * entryWords }

func slabHash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum64() | 1
}

// list adds a slab to the list. The caller has the tier's mu, as for unlist.
func (kt *keptTable) list(name string) bool { return kt.replaceSlab(0, slabHash(name)) }

func (kt *keptTable) unlist(name string) { kt.replaceSlab(slabHash(name), 0) }

// replaceSlab replaces the first entry of the list that is old.
func (kt *keptTable) replaceSlab(old, by uint64) bool {
	for i := range maxSlabs {
		if w := kt.words.At(kt.slabWord() + i); w.Load() == old {
			w.Store(by)
			return true
		}
	}
	return false
}

// hasAll reports whether all slabs in the list are among the files.
func (kt *keptTable) hasAll(files map[string]*os.File) bool {
	there := make(map[uint64]bool, len(files))
	for name := range files {
		there[slabHash(name)] = true
	}
	for i := range maxSlabs {
		if hash := kt.words.At(kt.slabWord() + i).Load(); hash != 0 && !there[hash] {
			return false
		}
	}
	return true
}
