package collective

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// EncodeCosts encodes costs for DecodeCosts, so that ranks can reuse those of an earlier
// group.
func EncodeCosts(c plan.Costs) []byte {
	p := make([]byte, 0, costsSize)
	p = binary.LittleEndian.AppendUint64(p, uint64(c.Inside.Latency))
	p = binary.LittleEndian.AppendUint64(p, uint64(c.Between.Latency))
	for _, f := range []float64{c.Inside.Bandwidth, c.Between.Bandwidth, c.Combine, c.Memory} {
		p = binary.LittleEndian.AppendUint64(p, math.Float64bits(f))
	}
	return p
}

// DecodeCosts decodes the result of EncodeCosts. The input need not be trusted.
//
// Errors: ErrArgument.
func DecodeCosts(p []byte) (plan.Costs, error) {
	if len(p) != costsSize {
		return plan.Costs{}, fmt.Errorf("%w: encoded costs have the wrong length, %d bytes", ErrArgument, len(p))
	}
	c := readCosts(p)
	for _, speed := range []float64{c.Inside.Bandwidth, c.Between.Bandwidth, c.Combine, c.Memory} {
		if math.IsNaN(speed) || math.IsInf(speed, 0) || speed < 0 {
			return plan.Costs{}, fmt.Errorf("%w: invalid bandwidth or speed %v", ErrArgument, speed)
		}
	}
	for _, l := range []time.Duration{c.Inside.Latency, c.Between.Latency} {
		if l < 0 || l > time.Hour {
			return plan.Costs{}, fmt.Errorf("%w: latency %v is out of range", ErrArgument, l)
		}
	}
	return c, nil
}

// costsSize is the size, in bytes, of encoded costs.
const costsSize = 48

func readCosts(p []byte) (c plan.Costs) {
	c.Inside.Latency = time.Duration(binary.LittleEndian.Uint64(p))
	c.Between.Latency = time.Duration(binary.LittleEndian.Uint64(p[8:]))
	for i, f := range []*float64{&c.Inside.Bandwidth, &c.Between.Bandwidth, &c.Combine, &c.Memory} {
		*f = math.Float64frombits(binary.LittleEndian.Uint64(p[16+8*i:]))
	}
	return c
}
