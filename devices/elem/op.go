package elem

import "fmt"

// Op is an operation that combines elements. Its values are used on the wire.
type Op uint8

// The operations.
const (
	Sum Op = iota + 1
	Prod
	Min
	Max
	Avg
)

// String returns the name of the operation, such as "sum".
func (o Op) String() string {
	names := [...]string{Sum: "sum", Prod: "prod", Min: "min", Max: "max", Avg: "avg"}
	if o == 0 || int(o) >= len(names) {
		return fmt.Sprintf("operation %d", uint8(o))
	}
	return names[o]
}

// Known reports whether the operation exists.
func (o Op) Known() bool { return o >= Sum && o <= Avg }
