package kit

import (
	"context"
	"testing"
	"time"
)

// Context returns the test's context with a time limit.
func Context(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}
