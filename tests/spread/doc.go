// Package spread runs each test of a package in a process of its own, several
// at a time. Tests that mount, start programs or count what their process
// holds (kit.Check) can't use t.Parallel; most of their time they wait.
//
// A package asks for it in its TestMain:
//
//	func TestMain(m *testing.M) { spread.Main(m) }
//
// The unit is a top-level test: a package whose subtests take long has several
// of those. Twice as many run at a time as -parallel says. Selected tests
// (-run), unless they are a list of whole names such as ^(TestA|TestB)$,
// benchmarks, fuzzing, profiles and coverage run in one process, as without this
// package.
package spread
