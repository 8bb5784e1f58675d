package comm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// BenchmarkNotify measures round trips of a tag alone, of a put of 8 bytes, and
// of a put with a tag, each way: two of the latter are the cost of one step in a
// chain of ranks.
func BenchmarkNotify(b *testing.B) {
	for name, at := range map[string]control.Address{"tcp": loopback(b), "unix": socket(b)} {
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			ranks, ops := notifyPair(b, at)
			go answer(ctx, ranks[1], ops[1])
			round := func(send func() error) func(*testing.B) {
				return func(b *testing.B) {
					b.Helper()
					for b.Loop() {
						if err := send(); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
			answered := func(err error) error {
				if err != nil {
					return err
				}
				_, err = ranks[0].RecvTag(ctx, 1)
				return err
			}
			b.Run("tag", round(func() error { return answered(ranks[0].SendTag(ctx, 1, 0)) }))
			b.Run("put", round(func() error { return ranks[0].Put(ctx, 1, ops[0]) }))
			b.Run("notify", round(func() error { return answered(ranks[0].PutNotify(ctx, 1, ops[0], 1)) }))
		})
	}
}

// answer sends each tag back, and those but 0 with a put.
func answer(ctx context.Context, c *comm.Communicator, op comm.Op) {
	for {
		tag, err := c.RecvTag(ctx, 0)
		if err == nil && tag == 0 {
			err = c.SendTag(ctx, 0, 0)
		} else if err == nil {
			err = c.PutNotify(ctx, 0, op, tag)
		}
		if err != nil {
			return
		}
	}
}

// notifyPair is two connected ranks, and for each a put of 8 bytes to the other.
func notifyPair(b *testing.B, at control.Address) (ranks [2]*comm.Communicator, ops [2]comm.Op) {
	b.Helper()
	for i := range ranks {
		engine, err := transport.New(transport.Options{})
		if err != nil {
			b.Fatal(err)
		}
		ranks[i], err = comm.New(comm.Options{
			Rank: wire.Rank(i), Secret: kit.Bytes(1, 0, 32), Engine: engine, Transports: []comm.Transport{comm.TCP},
		})
		if err != nil {
			b.Fatal(err)
		}
		if ops[i].Local, err = ranks[i].Table().Alloc(4096); err != nil {
			b.Fatal(err)
		}
		ops[i].Size = 8
		b.Cleanup(func() {
			if err := errors.Join(ranks[i].Close(), ops[i].Local.Close(context.Background()), engine.Close()); err != nil {
				b.Error(err)
			}
		})
	}
	at, err := ranks[1].Listen(b.Context(), at)
	if err == nil {
		err = ranks[0].Connect(b.Context(), 1, at)
	}
	if err == nil {
		err = ranks[1].Await(b.Context(), 0)
	}
	for i := range ranks {
		if err == nil {
			ops[i].Remote, err = ranks[1-i].Share(b.Context(), wire.Rank(i), ops[1-i].Local, wire.Writable)
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	return ranks, ops
}
