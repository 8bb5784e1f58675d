// Command pingpong is simpler's stream of messages between two ranks: in each of three rounds
// rank 0 sends 16384 values, and rank 1 sends them back with 7 added, until it gets the
// message to stop.
//
//	hmcfs run --nranks 2 -- pingpong
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/tests/examples/rank"
	"github.com/hmcfs/hmcfs/transport/domain"
)

const (
	rounds = 3
	size   = 16384
	// The first value of a message, which selects the operation of rank 1.
	opAdd  = 1
	opStop = 2
	tag    = 0
)

func main() { rank.Main(pingpong) }

func pingpong(ctx context.Context, r *rank.Rank) error {
	if r.World != 2 {
		return errors.New("two play: use --nranks 2")
	}
	d, err := r.Join(ctx)
	if err != nil {
		return err
	}
	order, err := r.Floats(ctx, 1)
	if err != nil {
		return err
	}
	data, err := r.Floats(ctx, size)
	if err != nil {
		return err
	}
	if r.Rank == 1 {
		return answer(ctx, d, order, data)
	}
	for round := range rounds {
		order.Set(0, opAdd)
		for i := range size {
			data.Set(i, float32(round*1000+i%251))
		}
		if err = errors.Join(d.Send(ctx, order.View, 1, tag), d.Send(ctx, data.View, 1, tag), d.Recv(ctx, data.View, 1, tag)); err != nil {
			return err
		}
		for i := range size {
			if want := float32(round*1000 + i%251 + 7); data.At(i) != want {
				return fmt.Errorf("round %d: value %d is %v, not %v", round, i, data.At(i), want)
			}
		}
		fmt.Printf("round %d: %d values are right\n", round, size) //nolint:forbidigo // an answer
	}
	order.Set(0, opStop)
	return d.Send(ctx, order.View, 1, tag)
}

func answer(ctx context.Context, d *domain.Comm, order, data *rank.Vector) error {
	for {
		if err := d.Recv(ctx, order.View, 0, tag); err != nil {
			return err
		}
		switch order.At(0) {
		case opStop:
			return nil
		case opAdd:
		default:
			return fmt.Errorf("order %v is unknown", order.At(0))
		}
		if err := d.Recv(ctx, data.View, 0, tag); err != nil {
			return err
		}
		for i := range data.Len() {
			data.Set(i, data.At(i)+7)
		}
		if err := d.Send(ctx, data.View, 0, tag); err != nil {
			return err
		}
	}
}
