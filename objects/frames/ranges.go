package frames

import (
	"encoding/binary"
	"fmt"
)

// MostRanges bounds the ranges that a call to open a file again has.
const MostRanges = 64

// Range is the range of bytes [From, End) of a file.
type Range struct{ From, End uint64 }

// AddRange adds a range that begins where the last one ends, or is one of its own. It is left out if there are
// MostRanges others.
func AddRange(all []Range, r Range) []Range {
	switch last := len(all) - 1; {
	case r.From >= r.End:
	case last >= 0 && all[last].End == r.From:
		all[last].End = r.End
	case len(all) < MostRanges:
		all = append(all, r)
	}
	return all
}

// AppendRanges appends ranges, as the data of a call to open a file again.
func AppendRanges(b []byte, all []Range) []byte {
	for _, r := range all {
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, r.From), r.End)
	}
	return b
}

// ParseRanges decodes ranges.
//
// Errors: ErrFrame.
func ParseRanges(data []byte) ([]Range, error) {
	c := cursor{rest: data}
	var all []Range
	for len(c.rest) > 0 && c.err == nil {
		r := Range{From: c.u64(), End: c.u64()}
		if c.err == nil && (r.From >= r.End || len(all) == MostRanges) {
			c.err = fmt.Errorf("%w: range %d from %d to %d", ErrFrame, len(all), r.From, r.End)
		}
		all = append(all, r)
	}
	return all, c.err
}
