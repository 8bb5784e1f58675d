package heterotest

import "testing"

// env is one case's world and its shorthands.
type env struct {
	testing.TB
	world World
}

func newEnv(t testing.TB, w World) *env { return &env{TB: t, world: w} }

// cases are the cases in the order in which they run.
func cases() []testCase { return nil }
