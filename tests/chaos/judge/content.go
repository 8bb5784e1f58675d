package judge

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// Versions holds the contents that a file, or a part of one, may have. A change that ended
// with an error may take effect late: its content remains possible until the second
// successful change after it.
type Versions struct {
	// Absent is set if the file may be absent.
	Absent bool
	// Seeds are the seeds, for kit.Bytes, of the possible contents.
	Seeds []uint64

	// late holds the changes since the last success that may still take effect.
	late       []uint64
	lateAbsent bool
	known      bool
}

// Set records a successful change.
func (v *Versions) Set(seed uint64) {
	*v = Versions{Absent: v.lateAbsent, Seeds: append([]uint64{seed}, v.late...), known: true}
}

// Remove records a successful removal.
func (v *Versions) Remove() {
	*v = Versions{Absent: true, Seeds: v.late, known: true}
}

// Try records a change that may have taken effect, or may do so later.
func (v *Versions) Try(seed uint64) {
	v.Seeds, v.late = append(v.Seeds, seed), append(v.late, seed)
}

// TryRemove records a removal that may have taken effect, or may do so later.
func (v *Versions) TryRemove() { v.Absent, v.lateAbsent = true, true }

// Known reports whether any change has succeeded.
func (v *Versions) Known() bool { return v.known }

// Content checks the content of a file that is replaced as a whole: all bytes must be those
// of one version. size returns the size, in bytes, of a version.
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

// Mixed checks a part, beginning at an offset, of a file that is written in place: each
// byte must be that of some version. Before the first successful change there may be a
// hole.
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

// Numbers returns count int32 elements of a seed. Their sums don't overflow.
func Numbers(seed uint64, count int) []byte {
	p := kit.Bytes(seed, 0, 4*count)
	for i := range count {
		word := p[4*i:]
		binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)>>8)
	}
	return p
}

// Sum returns the sum of files of equal length, element by element.
func Sum(files [][]byte) []byte {
	sum := make([]byte, len(files[0]))
	for _, f := range files {
		for i := 0; i+4 <= len(f); i += 4 {
			binary.LittleEndian.PutUint32(sum[i:], binary.LittleEndian.Uint32(sum[i:])+binary.LittleEndian.Uint32(f[i:]))
		}
	}
	return sum
}

// Collective compares the files of an all-reduce with their former contents, after all
// faults have ended. Each file must have its old bytes or the complete sum, and all must
// have the sum after a success. After a failure some may have changed and others not: a
// node that dies during the change leaves its own file unchanged.
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
