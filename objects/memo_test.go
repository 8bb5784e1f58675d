package objects

import (
	"errors"
	"testing"
)

func TestMemo(t *testing.T) {
	var m memo[int]
	finds := 0
	get := func(ino Ino, size uint64, found memoized[int]) (int, error) {
		return m.get(t.Context(), ino, stamp{size: size}, func() memoized[int] { finds++; return found })
	}
	broken := errors.New("broken")
	for _, step := range []struct {
		ino   Ino
		size  uint64
		found memoized[int]
		want  int
		err   error
		finds int
	}{
		{1, 1, memoized[int]{value: 10, keep: true}, 10, nil, 1},
		{1, 1, memoized[int]{value: 11, keep: true}, 10, nil, 1},     // known
		{1, 2, memoized[int]{value: 12, keep: true}, 12, nil, 2},     // another stamp
		{2, 1, memoized[int]{value: 20}, 20, nil, 3},                 // not to be kept
		{2, 1, memoized[int]{value: 21, keep: true}, 21, nil, 4},     // so asked again
		{3, 1, memoized[int]{err: broken, keep: true}, 0, broken, 5}, // an error is an answer
		{3, 1, memoized[int]{value: 30}, 0, broken, 5},
	} {
		got, err := get(step.ino, step.size, step.found)
		if got != step.want || !errors.Is(err, step.err) || finds != step.finds {
			t.Errorf("%+v: %d, %v after %d finds", step, got, err, finds)
		}
	}
	m.forget(1)
	if _, known := m.of[1]; known || m.count.Load() != 2 {
		t.Errorf("%d are left", m.count.Load())
	}
}

// TestMemoIsBounded checks that the oldest results are dropped, by number and by size.
func TestMemoIsBounded(t *testing.T) {
	var m memo[Ino]
	put := func(ino Ino, memory uint64) {
		if _, err := m.get(t.Context(), ino, stamp{}, func() memoized[Ino] { return memoized[Ino]{value: ino, memory: memory, keep: true} }); err != nil {
			t.Error(err)
		}
	}
	for ino := range Ino(3 * maxHeaders) {
		put(ino, 100)
		put(0, 100) // always in use
	}
	if len(m.of) != maxHeaders || m.bytes != 100*maxHeaders || m.of[0] == nil || m.of[3*maxHeaders-1] == nil {
		t.Errorf("%d answers of %d bytes", len(m.of), m.bytes)
	}
	put(9999, maxHeaderBytes+1) // larger than all may be: it stays alone
	if len(m.of) != 1 || m.of[9999] == nil {
		t.Errorf("%d answers of %d bytes", len(m.of), m.bytes)
	}
	put(10000, 5)
	if len(m.of) != 1 || m.bytes != 5 || m.count.Load() != 1 {
		t.Errorf("%d answers of %d bytes", len(m.of), m.bytes)
	}
}
