//go:build !amd64

package elem

// combineVectors returns how many of the first bytes it has combined.
func combineVectors(Op, Type, []byte, []byte, []byte) int { return 0 }

// divideVectors returns how many of the first bytes it has divided.
func divideVectors(Type, []byte, uint64) int { return 0 }
