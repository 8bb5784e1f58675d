package devices_test

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// TestSignalNotify: each function is called once, before and after the signal is set, and
// only the first call of Set counts.
func TestSignalNotify(t *testing.T) {
	t.Parallel()
	s, failed := devices.NewSignal(), errors.New("failed")
	calls := 0
	note := func(err error) {
		if calls++; !errors.Is(err, failed) {
			t.Errorf("told %v", err)
		}
	}
	s.Notify(note)
	if err := s.Err(); err != nil || calls != 0 {
		t.Fatalf("before it is set: %v, %d calls", err, calls)
	}
	s.Set(failed)
	s.Set(nil)
	s.Notify(note)
	<-s.Done()
	if err := s.Err(); !errors.Is(err, failed) || calls != 2 {
		t.Fatalf("after it is set: %v, %d calls", err, calls)
	}
}
