package kit

import (
	"context"
	"testing"
	"time"
)

// Context is the test's own, with a limit.
func Context(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}
