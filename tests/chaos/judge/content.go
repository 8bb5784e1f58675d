package judge

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// Versions are the contents that a file, or a part of one, may have. A change
// whose caller had an error may happen late: it is one of them until the second
// change after it that has succeeded.
type Versions struct {
	// Absent allows that there is no file.
	Absent bool
	// Seeds are those of kit.Bytes.
	Seeds []uint64

	// late are the changes since the last success that may still happen.
	late       []uint64
	lateAbsent bool
	known      bool
}

// Set is a change that has happened.
func (v *Versions) Set(seed uint64) {
	*v = Versions{Absent: v.lateAbsent, Seeds: append([]uint64{seed}, v.late...), known: true}
}

// Remove is a removal that has happened.
func (v *Versions) Remove() {
	*v = Versions{Absent: true, Seeds: v.late, known: true}
}

// Try is a change that may have happened, now or later.
func (v *Versions) Try(seed uint64) {
	v.Seeds, v.late = append(v.Seeds, seed), append(v.late, seed)
}

// TryRemove is a removal that may have happened, now or later.
func (v *Versions) TryRemove() { v.Absent, v.lateAbsent = true, true }

// Known reports whether any change has succeeded.
func (v *Versions) Known() bool { return v.known }

// Content compares what was read with the versions, of which each has a size
// of its own. A file that changes whole has all bytes of one version.
func (v *Versions) Content(name string, got []byte, size func(seed uint64) int) []Violation {
	at := -1
	for _, seed := range v.Seeds {
		diff := kit.DiffAt(got, seed, 0)
		if diff < 0 && len(got) == size(seed) {
			return nil
		}
		at = max(at, diff)
	}
	return []Violation{{"wrong bytes", fmt.Sprintf("%s: %d bytes of none of the versions %v, the best differs at byte %d", name, len(got), v.Seeds, at)}}
}

// Mixed compares what was read of a place that is written where it lies, from
// an offset on: each byte is of some version. Before any change has succeeded
// there may be a hole.
func (v *Versions) Mixed(name string, off int64, got []byte) []Violation {
	if !v.known {
		return nil
	}
	wrong := make([]bool, len(got))
	for i := range wrong {
		wrong[i] = true
	}
	for _, seed := range v.Seeds {
		for i, b := range kit.Bytes(seed, off, len(got)) {
			wrong[i] = wrong[i] && b != got[i]
		}
	}
	for i, bad := range wrong {
		if bad {
			return []Violation{{"wrong bytes", fmt.Sprintf("%s: byte %d is of none of %d versions", name, off+int64(i), len(v.Seeds))}}
		}
	}
	return nil
}

// Numbers are the int32 elements of a seed, whose sums don't overflow.
func Numbers(seed uint64, count int) []byte {
	p := kit.Bytes(seed, 0, 4*count)
	for i := range count {
		word := p[4*i:]
		binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)>>8)
	}
	return p
}

// Sum is the all-reduce of equally long files.
func Sum(files [][]byte) []byte {
	sum := make([]byte, len(files[0]))
	for _, f := range files {
		for i := 0; i+4 <= len(f); i += 4 {
			binary.LittleEndian.PutUint32(sum[i:], binary.LittleEndian.Uint32(sum[i:])+binary.LittleEndian.Uint32(f[i:]))
		}
	}
	return sum
}

// Collective compares the files of an all-reduce with what they were before it,
// when all faults are over. Each is its old bytes or the sum, whole; after
// success all are the sum. After a failure some may have changed and others
// not: a node that dies in the moment of the change leaves its own as they were.
func Collective(name string, outcome Outcome, before, after [][]byte) []Violation {
	sum := Sum(before)
	kept := 0
	for rank, got := range after {
		switch {
		case bytes.Equal(got, sum):
		case bytes.Equal(got, before[rank]):
			kept++
		default:
			return []Violation{{"mixed collective", fmt.Sprintf("%s: the file of rank %d is neither the old one nor the sum, from byte %d on",
				name, rank, kit.FirstDiff(got, sum))}}
		}
	}
	if outcome == Done && kept > 0 {
		return []Violation{{"mixed collective", fmt.Sprintf("%s has succeeded: %d of %d files have not changed", name, kept, len(after))}}
	}
	return nil
}
