// Command treduce is simpler's first distributed example: the root adds up the inputs in the
// windows of all ranks.
//
//	hmcfs run --config tests/examples/treduce/4.yaml -- treduce
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/hmcfs/hmcfs/tests/examples/rank"
)

func main() { rank.Main(reduce) }

func reduce(ctx context.Context, r *rank.Rank) error {
	windows, err := r.Gather(ctx)
	if err != nil || r.Rank != r.Root {
		return err
	}
	out, err := r.Buffer("OUTPUT")
	if err != nil {
		return err
	}
	at, err := rank.Number("HMCFS_BUFFER_INPUT_OFFSET")
	if err != nil {
		return err
	}
	sums := make([]float32, len(out)/4)
	for _, window := range windows {
		for i := range sums {
			sums[i] += math.Float32frombits(binary.LittleEndian.Uint32(window[at+4*i:]))
		}
	}
	for i, s := range sums {
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(s))
	}
	if len(sums) > 0 {
		fmt.Printf("%d ranks: %v … %v\n", r.World, sums[0], sums[len(sums)-1]) //nolint:forbidigo // an answer
	}
	return nil
}
