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

// layout is the layout of a window, the same at every rank.
type layout struct {
	window uint64
	// offsets are the offsets of the buffers in the window.
	offsets map[string]uint64
}

// stride returns the distance between two windows in memory.
func (l *layout) stride() uint64 {
	return (l.window + pageOfWindows - 1) / pageOfWindows * pageOfWindows
}

// layout places the buffers of the window after the prefix, in the order of their
// declaration, without gaps.
func (p *Plan) layout() layout {
	l := layout{window: uint64(p.Window), offsets: map[string]uint64{}}
	at := p.WinSyncPrefix
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.inWindow() {
			l.offsets[b.Name] = at
			at += b.size()
		}
	}
	l.window = max(l.window, at)
	return l
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
	binary.LittleEndian.PutUint64(p[atWinSize:], j.layout.window)
	for r := j.First; r < j.First+j.Count; r++ {
		at := windowBase + uint64(r)*j.layout.stride()
		binary.LittleEndian.PutUint64(p[atIn+8*r:], at)
		binary.LittleEndian.PutUint64(p[atOut+8*r:], at)
	}
	return p
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
