package fault

import (
	"fmt"
	"slices"
	"testing"
)

// EachIndex runs body as a subtest with the first matching operation
// failing, then with the second, and so on, until a run in which there was
// none left to fail: that last one must succeed by itself. More than limit
// runs fail the test.
//
// The body does the work through inj and demands an error or a right result,
// and that nothing is lost or leaked either way.
func EachIndex[Op ~string](
	t *testing.T, err error, limit int64, body func(t *testing.T, inj *Injector[Op]), when ...Matcher,
) {
	t.Helper()
	for n := range limit {
		inj := New[Op](Fail(err, append(slices.Clip(when), OnIndex(n))...))
		ok := t.Run(fmt.Sprintf("fail=%d", n), func(t *testing.T) { body(t, inj) })
		if !ok || inj.Injected() == 0 {
			return
		}
	}
	t.Errorf("still failing operations after %d runs", limit)
}
