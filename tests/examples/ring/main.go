// Command ring is the seed's ring, exactly as written there, and a corrected one that meets
// its description.
//
//	hmcfs run --config tests/examples/ring/seed.yaml -- ring seed
//	hmcfs run --config tests/examples/ring/corrected.yaml -- ring corrected
//
// The seed's ranks add the data that they receive to their own, and send the sum on. So after
// four rounds of four ranks they have 2, 4, 6 and 4 times the first data, not the same. The
// corrected ring forwards the received data, N-1 times, and all ranks end with rank 0's data.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/tests/examples/rank"
	"github.com/hmcfs/hmcfs/transport/domain"
)

func main() { rank.Main(ring) }

const tag = 0

func ring(ctx context.Context, r *rank.Rank) error {
	if len(os.Args) < 2 || os.Args[1] != "seed" && os.Args[1] != "corrected" {
		return errors.New("use: ring seed, or ring corrected")
	}
	d, err := r.Join(ctx)
	if err != nil {
		return err
	}
	data, err := r.Floats(ctx, 10)
	if err != nil {
		return err
	}
	received, err := r.Floats(ctx, 10)
	if err != nil {
		return err
	}
	if r.Rank == 0 {
		for i := range data.Len() {
			data.Set(i, float32(i))
		}
	}
	left, right := domain.Rank((r.Rank+r.World-1)%r.World), domain.Rank((r.Rank+1)%r.World)
	round := func() error {
		// All ranks send first. This does not deadlock, because 40 bytes need no receive.
		if serr := d.Send(ctx, data.View, right, tag); serr != nil {
			return serr
		}
		return d.Recv(ctx, received.View, left, tag)
	}
	if os.Args[1] == "seed" {
		for range r.World {
			if err = round(); err != nil {
				return err
			}
			for i := range data.Len() {
				data.Set(i, data.At(i)+received.At(i))
			}
		}
	} else if err = forward(r, data, received, round); err != nil {
		return err
	}
	out, err := r.Buffer("DATA")
	if err != nil {
		return err
	}
	copy(out, data.Bytes())
	fmt.Println(data) //nolint:forbidigo // an answer
	return nil
}

// forward sends on the received data. Rank 0 keeps its own.
func forward(r *rank.Rank, data, received *rank.Vector, round func() error) error {
	for range r.World - 1 {
		if err := round(); err != nil {
			return err
		}
		if r.Rank == 0 {
			continue
		}
		copy(data.Bytes(), received.Bytes())
	}
	return nil
}
