package metadata_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
)

// testClock advances by a second on every call.
type testClock struct{ n atomic.Int64 }

func (c *testClock) now() time.Time { return time.Unix(1_000_000+c.n.Add(1), 123_456_789) }

// checkStore is checkClean for cleanups, when a test's own context has ended.
func checkStore(t *testing.T, s *metadata.Store) {
	t.Helper()
	err := s.Check(context.Background(), func(p metadata.Problem) { t.Errorf("Check: %v", p) })
	if err != nil {
		t.Errorf("Check: %v", err)
	}
}
