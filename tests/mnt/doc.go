// Package mnt mounts hmcfs for tests: the real program, in a process of its own, below a
// directory that disappears with the test process, however that ends.
//
// A test package that uses it calls Main from its TestMain:
//
//	func TestMain(m *testing.M) { mnt.Main(m, nil) }
//
// The test binary then doubles as the program: run under the name hmcfs it calls cli.Run, with
// faults around its devices if a test asks for them (see Faults). So the daemon of a test run
// with -race includes the race detector, and nothing is built twice.
//
//	func TestSomething(t *testing.T) {
//		kit.Check(t)
//		m := mnt.Mount(t, mnt.Options{Devices: []string{"sim:0,size=64MiB"}})
//		os.WriteFile(m.Path("sim0", "a"), …)
//	}
package mnt
