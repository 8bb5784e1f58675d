package heterotest

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Run runs the whole suite in a world.
func Run(t *testing.T, w World) {
	t.Helper()
	RunBut(t, w)
}

// RunBut runs the suite without the cases whose names begin with one of apart: those that a
// world does not promise.
func RunBut(t *testing.T, w World, apart ...string) {
	t.Helper()
	for _, c := range cases() {
		if slices.ContainsFunc(apart, func(name string) bool { return strings.HasPrefix(c.name, name) }) {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.in(t, w, runPatience) })
	}
}

// testCase is one case with its name, which begins with its letter and number in the seed
// system, if it has one.
type testCase struct {
	name string
	run  func(*env)
}

// in runs the case in a world.
func (c testCase) in(t testing.TB, w World, patience time.Duration) {
	t.Helper()
	e := newEnv(t, w, patience)
	c.run(e)
	e.verify()
	e.tidy()
}

// cases returns the cases in the order in which they run.
func cases() []testCase {
	return slices.Concat(
		deviceCases(), replicaCases(), raceCases(),
		handOverCases(), publisherCases(),
		hostCases(), asyncCases(), existingCases(),
		directoryCases(), limitCases(), largeCases(),
	)
}
