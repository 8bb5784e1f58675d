package runner

import (
	"encoding/binary"
	"maps"
	"slices"
)

// windowBase is the address at which programs that follow the context map rank 0's window:
// an address far from Go's heap and from the kernel's choices for mappings and programs.
const windowBase = 0x1000_0000_0000

// pageOfWindows is the alignment of windows in memory.
const pageOfWindows = 2 << 20

// stride returns the distance between two windows in memory.
func (p *Plan) stride() uint64 {
	return (uint64(p.Window) + pageOfWindows - 1) / pageOfWindows * pageOfWindows
}

// Offsets in the CommContext of simpler, by which kernels find windows.
const (
	contextSize = 1056
	atRank      = 16
	atRanks     = 20
	atWinSize   = 24
	atIn        = 32
	atOut       = 544
)

// context returns the CommContext of a rank, for windows mapped from windowBase on. The
// address is 0 for windows of other hosts, which can't be mapped.
func (j *job) context(rank int) []byte {
	p := make([]byte, contextSize)
	binary.LittleEndian.PutUint32(p[atRank:], uint32(rank))
	binary.LittleEndian.PutUint32(p[atRanks:], uint32(j.plan.Ranks))
	binary.LittleEndian.PutUint64(p[atWinSize:], uint64(j.plan.Window))
	for r := j.First; r < j.First+j.Count; r++ {
		at := windowBase + uint64(r)*j.plan.stride()
		binary.LittleEndian.PutUint64(p[atIn+8*r:], at)
		binary.LittleEndian.PutUint64(p[atOut+8*r:], at)
	}
	return p
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
