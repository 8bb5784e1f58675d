// Package mnt mounts hmcfs for tests: the real program, in a process of its
// own, below a directory that is gone when the test process is, however that
// ends.
//
// A test package that uses it hands its TestMain over:
//
//	func TestMain(m *testing.M) { mnt.Main(m) }
//
// The test binary then is the program too: run under the name hmcfs it calls
// cli.Run, with faults around its devices where a test asks for them (see
// Faults). So the daemon of a test run with -race has the race detector in
// it, and nothing is built twice.
//
//	func TestSomething(t *testing.T) {
//		kit.Check(t)
//		m := mnt.Mount(t, mnt.Options{Devices: []string{"sim:0,size=64MiB"}})
//		os.WriteFile(m.Path("sim0", "a"), …)
//	}
package mnt
