// Command pipeline is the seed's pipeline of three stages, one per rank: +1, ×2 and -3, over
// 16 batches. A stage works on one batch while the next stage works on the batch before.
//
//	hmcfs run --config tests/examples/pipeline/job.yaml -- pipeline
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/tests/examples/rank"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	batches = 16
	size    = 1024
)

func main() { rank.Main(pipeline) }

func stage(r int, x float32) float32 {
	switch r {
	case 0:
		return x + 1
	case 1:
		return x * 2
	default:
		return x - 3
	}
}

func pipeline(ctx context.Context, r *rank.Rank) error {
	if r.World != 3 {
		return errors.New("the pipeline has three stages: use --nranks 3")
	}
	d, err := r.Join(ctx)
	if err != nil {
		return err
	}
	batch, err := r.Floats(ctx, size)
	if err != nil {
		return err
	}
	out, err := r.Buffer("OUT")
	if err != nil {
		return err
	}
	for b := range batches {
		if r.Rank == 0 {
			for i := range size {
				batch.Set(i, float32(b*size+i))
			}
		} else if err = d.Recv(ctx, batch.View, d.Rank()-1, wire.Tag(b)); err != nil {
			return err
		}
		for i := range size {
			batch.Set(i, stage(r.Rank, batch.At(i)))
		}
		if r.Rank < r.World-1 {
			err = d.Send(ctx, batch.View, d.Rank()+1, wire.Tag(b))
		} else if len(out) > 0 {
			copy(out[4*size*b:], batch.Bytes())
		}
		if err != nil {
			return err
		}
	}
	if r.Rank == r.World-1 {
		fmt.Printf("%d batches, the last one ends with %v\n", batches, batch.At(size-1)) //nolint:forbidigo // an answer
	}
	return nil
}
