// Package sandbox runs the calling program again in mount, process and network namespaces of
// its own: its mounts and processes end with it, however it ends. The programs that attack
// hmcfs are built on it.
//
//	func main() {
//		if dir := sandbox.Inside(); dir != "" {
//			// attack, below dir; files in sandbox.Scratch(dir) vanish with the process
//		}
//		err := sandbox.Run(ctx, sandbox.Options{Name: "chaos", …})
//	}
//
// It needs root.
package sandbox
