package devices

import (
	"math"
	"strings"
	"testing"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "4096": 4096, "10B": 10, " 7 b ": 7,
		"1k": KiB, "1K": KiB, "1KiB": KiB, "1kb": 1000,
		"512M": 512 * MiB, "512MiB": 512 * MiB, "512MB": 512e6,
		"4GiB": 4 * GiB, "4 GiB": 4 * GiB, "4g": 4 * GiB, "2GB": 2e9,
		"1TiB": TiB, "3TB": 3e12, "1.5gib": GiB + GiB/2, "0.5k": 512, ".5M": MiB / 2, "1.M": MiB,
		"9223372036854775807":  math.MaxInt64,
		"9007199254740993":     1<<53 + 1,
		"9007199254740991KiB":  (1<<53 - 1) * KiB,
		"8388607TiB":           8388607 * TiB,
		"0000000000000000001K": KiB,
	} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", text, uint64(got), err, uint64(want))
		}
	}
	for text, says := range map[string]string{
		"":                      "not a number",
		"GiB":                   "not a number",
		"1.2.3M":                "not a number",
		".":                     "not a number",
		"-1":                    "unknown unit",
		"+1":                    "unknown unit",
		"1e3":                   "unknown unit",
		"0x10":                  "unknown unit",
		"1PiB":                  "unknown unit",
		"1 GiB/s":               "unknown unit",
		"4GiBs":                 "unknown unit",
		"NaN":                   "unknown unit",
		"9223372036854775808":   "larger than any",
		"18446744073709551615":  "larger than any",
		"8388608TiB":            "larger than any",
		"99999999999999999999":  "not a number",
		"9999999999999999999.5": "not a number",
	} {
		if n, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseSize(%q) = %d, %v; want %q", text, uint64(n), err, says)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{"4GiB", "1.5gib", "", "-1", "9223372036854775808", "8388608TiB", "1e9", " 2 kb "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseSize(text)
		if err != nil {
			if n != 0 {
				t.Errorf("%q: %d with an error", text, uint64(n))
			}
			return
		}
		if n > maxSize {
			t.Errorf("%q is %d", text, uint64(n))
		}
		if n.String() == "" {
			t.Errorf("%q has no text", text)
		}
	})
}

func TestSizeString(t *testing.T) {
	for n, want := range map[Size]string{
		0: "0 B", 1023: "1023 B", KiB: "1.0 KiB", 1536: "1.5 KiB", MiB: "1.0 MiB",
		12 * GiB: "12.0 GiB", 3 * TiB: "3.0 TiB", math.MaxUint64: "16777216.0 TiB",
	} {
		if got := n.String(); got != want {
			t.Errorf("%d is %q, want %q", uint64(n), got, want)
		}
	}
}

func TestRange(t *testing.T) {
	const top = math.MaxInt64
	for _, tt := range []struct {
		r      Range
		n      Size
		well   bool
		within bool
	}{
		{Range{}, 0, true, true},
		{Range{0, 10}, 10, true, true},
		{Range{10, 0}, 10, true, true},
		{Range{11, 0}, 10, true, false},
		{Range{0, 11}, 10, true, false},
		{Range{5, 6}, 10, true, false},
		{Range{top, 0}, top, true, true},
		{Range{0, top}, top, true, true},
		{Range{1, top}, math.MaxUint64, false, false},
		{Range{top, 1}, math.MaxUint64, false, false},
		{Range{math.MaxUint64, 2}, 10, false, false},
		{Range{2, math.MaxUint64}, 10, false, false},
		{Range{math.MaxUint64, math.MaxUint64}, math.MaxUint64, false, false},
	} {
		if got := tt.r.WellFormed(); got != tt.well {
			t.Errorf("%v well formed: %v", tt.r, got)
		}
		if got := tt.r.Within(tt.n); got != tt.within {
			t.Errorf("%v within %d: %v", tt.r, uint64(tt.n), got)
		}
	}
}

func TestRangeOverlaps(t *testing.T) {
	for _, tt := range []struct {
		a, b Range
		want bool
	}{
		{Range{0, 10}, Range{5, 10}, true},
		{Range{0, 10}, Range{9, 1}, true},
		{Range{0, 10}, Range{10, 1}, false},
		{Range{0, 10}, Range{2, 3}, true},
		{Range{0, 10}, Range{0, 10}, true},
		{Range{0, 10}, Range{5, 0}, false},
		{Range{5, 0}, Range{5, 0}, false},
	} {
		if tt.a.Overlaps(tt.b) != tt.want || tt.b.Overlaps(tt.a) != tt.want {
			t.Errorf("%v and %v overlap: want %v", tt.a, tt.b, tt.want)
		}
	}
}

func TestRangeString(t *testing.T) {
	for want, r := range map[string]Range{
		"[5, 8)":                      {5, 3},
		"[18446744073709551615, +10)": {math.MaxUint64, 10},
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNextEpoch(t *testing.T) {
	first := NextEpoch(0)
	if first == 0 {
		t.Error("epoch 0 is no epoch")
	}
	last := first
	for range 1000 {
		next := NextEpoch(last)
		if next <= last {
			t.Fatalf("%d after %d", next, last)
		}
		last = next
	}
	if got := NextEpoch(math.MaxInt64); got != math.MaxInt64+1 {
		t.Errorf("%d after a clock that was ahead", got)
	}
}
