package heterotest

import "testing"

// Run runs the whole suite in a world.
func Run(t *testing.T, w World) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(newEnv(t, w)) })
	}
}

// testCase is one case by its name, which begins with its letter and number
// where the seed system has it.
type testCase struct {
	name string
	run  func(*env)
}
