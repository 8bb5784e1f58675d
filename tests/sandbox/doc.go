// Package sandbox runs a program again in mount, process and network
// namespaces of its own: what it mounts and starts there ends with it, however
// it ends. The programs that attack hmcfs are built on it.
//
//	func main() {
//		if dir := sandbox.Inside(); dir != "" {
//			// attack, below dir; what is in sandbox.Scratch(dir) ends with the process
//		}
//		err := sandbox.Run(ctx, sandbox.Options{Name: "chaos", …})
//	}
//
// It needs root.
package sandbox
