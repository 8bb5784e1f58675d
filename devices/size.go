package devices

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a length in bytes.
type Size uint64

// The binary units.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

// String formats the size for people, with one decimal: "12.0 GiB".
func (s Size) String() string {
	switch {
	case s >= TiB:
		return fmt.Sprintf("%.1f TiB", float64(s)/float64(TiB))
	case s >= GiB:
		return fmt.Sprintf("%.1f GiB", float64(s)/float64(GiB))
	case s >= MiB:
		return fmt.Sprintf("%.1f MiB", float64(s)/float64(MiB))
	case s >= KiB:
		return fmt.Sprintf("%.1f KiB", float64(s)/float64(KiB))
	}
	return fmt.Sprintf("%d B", uint64(s))
}

// maxSize is the largest size accepted from a user: any sum of an offset and a length
// inside it fits into 64 bits.
const maxSize Size = math.MaxInt64

// ParseSize parses "4GiB", "512M", "1.5gib", "2GB" or plain bytes. A single letter is
// binary (M = MiB), MB is decimal. Integers are exact, and no size is 2^63 or more.
func ParseSize(text string) (Size, error) {
	t := strings.TrimSpace(text)
	cut := strings.IndexFunc(t, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if cut < 0 {
		cut = len(t)
	}
	// A bare letter is binary, as in dd and truncate.
	unit, known := map[string]Size{
		"": 1, "b": 1, "k": KiB, "kib": KiB, "m": MiB, "mib": MiB, "g": GiB, "gib": GiB, "t": TiB, "tib": TiB,
		"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	}[strings.ToLower(strings.TrimSpace(t[cut:]))]
	if !known {
		return 0, fmt.Errorf("size %q: unknown unit %q; use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB", text, t[cut:])
	}
	if whole, err := strconv.ParseUint(t[:cut], 10, 64); err == nil {
		if Size(whole) > maxSize/unit {
			return 0, fmt.Errorf("size %q: larger than any device", text)
		}
		return Size(whole) * unit, nil
	}
	n, err := strconv.ParseFloat(t[:cut], 64)
	if err != nil || n*float64(unit) >= float64(maxSize) {
		return 0, fmt.Errorf("size %q: not a number of bytes such as 512MiB or 4GiB", text)
	}
	return Size(n * float64(unit)), nil
}

// Offset is a position in bytes from the start of an allocation.
type Offset uint64

// Range is a half-open stretch of bytes: [Off, Off+Len).
type Range struct {
	Off Offset
	Len Size
}

// WellFormed reports whether the end of the range fits into 63 bits, so that no sum
// computed from it overflows.
func (r Range) WellFormed() bool {
	return uint64(r.Off) <= math.MaxInt64 && uint64(r.Len) <= math.MaxInt64-uint64(r.Off)
}

// End returns the first offset after the range.
func (r Range) End() Offset { return r.Off + Offset(r.Len) }

// Within reports whether the range is inside n bytes.
func (r Range) Within(n Size) bool {
	return r.WellFormed() && uint64(r.End()) <= uint64(n)
}

// Overlaps reports whether two well-formed ranges have a byte in common.
func (r Range) Overlaps(o Range) bool {
	return r.Len > 0 && o.Len > 0 && r.Off < o.End() && o.Off < r.End()
}

// String formats the range as [off, end).
func (r Range) String() string {
	if !r.WellFormed() {
		return fmt.Sprintf("[%d, +%d)", uint64(r.Off), uint64(r.Len))
	}
	return fmt.Sprintf("[%d, %d)", uint64(r.Off), uint64(r.End()))
}
