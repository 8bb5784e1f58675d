package elem

import "fmt"

// Op combines elements. Its numbers are on the wire.
type Op uint8

// The operations.
const (
	Sum Op = iota + 1
	Prod
	Min
	Max
	Avg
)

// String is the name of the operation: "sum".
func (o Op) String() string {
	names := [...]string{Sum: "sum", Prod: "prod", Min: "min", Max: "max", Avg: "avg"}
	if o == 0 || int(o) >= len(names) {
		return fmt.Sprintf("operation %d", uint8(o))
	}
	return names[o]
}

// Known says whether there is such an operation.
func (o Op) Known() bool { return o >= Sum && o <= Avg }
