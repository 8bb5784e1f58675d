package coord_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// TestStrangeLongNames: the memory used for unusable entries does not grow with their
// names.
func TestStrangeLongNames(t *testing.T) {
	var s coord.Strange
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const entries, length = 64, 1 << 20
	for i := range entries {
		s.Found(zap.NewNop(), "strange", coord.Entry{Name: fmt.Sprint(i, strings.Repeat("x", length)), Revision: 1}, errors.ErrUnsupported)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := s.Count(); n != entries {
		t.Errorf("%d entries", n)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > entries*length/8 {
		t.Errorf("%d bytes are kept", grown)
	}
	for i := range entries {
		s.Gone(fmt.Sprint(i, strings.Repeat("x", length)))
	}
	if n := s.Count(); n != 0 {
		t.Errorf("%d entries after they are gone", n)
	}
}
