// Command gradients is one step of data-parallel training: every rank has the gradients of its
// share of the data, which are averaged over all ranks in fused buckets, and takes the same
// step with them.
//
//	hmcfs run --config tests/examples/gradients/job.yaml -- gradients
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/examples/rank"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/fusion"
)

const (
	layers    = 24
	perLayer  = 1000
	stepWidth = 0.5
)

func main() { rank.Main(train) }

func train(ctx context.Context, r *rank.Rank) (err error) {
	if _, err = r.Join(ctx); err != nil {
		return err
	}
	g, err := collective.New(ctx, r.Job.World().Fabric(), collective.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }() //nolint:contextcheck // it takes none
	mean, err := average(ctx, r, g)
	if err != nil {
		return err
	}
	return step(ctx, r, mean)
}

// average computes the gradients, the last layer first, as in a backward pass, and averages
// them concurrently.
func average(ctx context.Context, r *rank.Rank, g *collective.Group) (_ []*rank.Vector, err error) {
	// Only the number of bytes determines the buckets, so that every run behaves alike.
	fuser, err := fusion.New(ctx, g, r.Job.Table(), fusion.Options{Type: elem.Float32, Op: elem.Avg, Bytes: 32 << 10, Window: -1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fuser.Close(ctx)) }()
	gradients := make([]*rank.Vector, layers)
	for l := layers - 1; l >= 0; l-- {
		if gradients[l], err = r.Floats(ctx, perLayer); err != nil {
			return nil, err
		}
		for i := range perLayer {
			gradients[l].Set(i, float32(r.Rank+i%4))
		}
		if _, err = fuser.Add(gradients[l].View); err != nil {
			return nil, err
		}
	}
	return gradients, fuser.Flush(ctx)
}

// step moves the weights in the direction opposite to the mean gradients.
func step(ctx context.Context, r *rank.Rank, mean []*rank.Vector) error {
	out, err := r.Buffer("WEIGHTS")
	if err != nil {
		return err
	}
	weights, err := r.Floats(ctx, perLayer)
	if err != nil {
		return err
	}
	for l, gradient := range mean {
		for i := range perLayer {
			weights.Set(i, float32(i%10)-stepWidth*gradient.At(i))
		}
		if len(out) > 0 {
			copy(out[4*perLayer*l:], weights.Bytes())
		}
	}
	fmt.Printf("%d layers of %d weights: %v %v %v …\n", layers, perLayer, weights.At(0), weights.At(1), weights.At(2)) //nolint:forbidigo // an answer
	return nil
}
