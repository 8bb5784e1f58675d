// Package spread runs each test of a package in its own process, several at a time. It is for
// tests that mount, start programs or count the resources of their process (kit.Check): these
// cannot use t.Parallel, and wait most of the time.
//
// A package uses it from its TestMain:
//
//	func TestMain(m *testing.M) { spread.Main(m) }
//
// The unit is a top-level test: a package with slow subtests should split them into several
// tests. The number of tests that run at a time is twice the value of -parallel. Selected
// tests (-run), unless they are a list of whole names such as ^(TestA|TestB)$, benchmarks,
// fuzzing, profiles and coverage run in one process, as without this package.
package spread
