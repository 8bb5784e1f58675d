package fault

import (
	"fmt"
	"slices"
	"testing"
)

// EachIndex runs body as a subtest with the first matching operation failing, then with the
// second, and so on, until a run in which no operation was left to fail; that last run must
// succeed. More than limit runs fail the test.
//
// The body works through inj, and requires an error or a correct result, and in both cases that
// nothing is lost or leaked.
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
