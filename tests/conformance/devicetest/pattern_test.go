package devicetest

import (
	"bytes"
	"testing"
)

func TestPatternDependsOnPosition(t *testing.T) {
	whole := Bytes(1000, 5)
	for _, r := range [][2]int{{0, 1}, {1, 7}, {3, 100}, {8, 16}, {999, 1}, {500, 0}} {
		part := make([]byte, r[1])
		Pattern(part, 5, uint64(r[0]))
		if err := Compare(part, whole[r[0]:r[0]+r[1]]); err != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
	if bytes.Equal(whole, Bytes(1000, 6)) {
		t.Error("two seeds, one pattern")
	}
	if bytes.Equal(whole[:100], whole[8:108]) {
		t.Error("the pattern repeats")
	}
}

func TestCompare(t *testing.T) {
	if err := Compare([]byte{1, 2}, []byte{1, 2}); err != nil {
		t.Error(err)
	}
	for _, got := range [][]byte{{}, {1}, {1, 3}, {1, 2, 3}} {
		if Compare(got, []byte{1, 2}) == nil {
			t.Errorf("%v passes for {1, 2}", got)
		}
	}
}

func TestRandIsTheSame(t *testing.T) {
	a, b := NewRand(1), NewRand(1)
	for range 100 {
		if x, y := a.Below(10), b.Below(10); x != y || x >= 10 {
			t.Fatalf("%d and %d", x, y)
		}
	}
}
