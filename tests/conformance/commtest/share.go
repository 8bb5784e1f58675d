package commtest

import (
	"errors"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// testManyShares shares, uses and revokes keys in many goroutines at once, in both directions,
// each in one of the possible ways.
func testManyShares(t *testing.T, w Way) {
	job := w.pair(t)
	const size = 20_000
	rounds := 40
	if kit.Race() || testing.Short() {
		rounds = 10
	}
	common := [2]*region.Buffer{job.host(t, 0, size), job.host(t, 1, size)}
	var all sync.WaitGroup
	for i := range 8 {
		local := job.host(t, 1-i%2, size)
		transporttest.Fill(t, local, uint64(i))
		all.Go(func() {
			for round := range rounds {
				if err := shareOnce(t, job, i%2, local, common[i%2], round); err != nil {
					t.Errorf("goroutine %d, round %d: %v", i, round, err)
					return
				}
			}
		})
	}
	all.Wait()
	for _, c := range job.ranks {
		if p := c.Peers(); len(p) != 1 || p[0].Windows != 0 {
			t.Errorf("%s: %+v", c.Rank(), p)
		}
	}
}

// shareOnce gives a key to a new buffer of the owner or, in every fourth round, to one that
// others share, too; it uses the key and revokes it.
func shareOnce(t *testing.T, job *world, owner int, local, common *region.Buffer, round int) error {
	t.Helper()
	b := common
	if round%4 != 0 {
		var err error
		if b, err = job.ranks[owner].Table().Alloc(local.Size()); err != nil {
			return err
		}
	}
	peer := 1 - owner
	d, err := job.ranks[owner].Share(within(t), wire.Rank(peer), b, both)
	if err != nil {
		return err
	}
	op := comm.Op{Local: local, Remote: d, Size: local.Size()}
	if err = job.ranks[peer].Put(within(t), wire.Rank(owner), op); err != nil {
		return err
	}
	switch {
	case b == common || round%4 == 1:
		err = job.ranks[owner].Revoke(within(t), wire.Rank(peer), d.Key)
	case round%4 == 2:
		err = b.Close(within(t))
	default:
		// Both at once.
		var both sync.WaitGroup
		both.Go(func() { err = b.Close(within(t)) })
		both.Go(func() { _ = job.ranks[owner].Revoke(within(t), wire.Rank(peer), d.Key) })
		both.Wait()
	}
	if err != nil {
		return err
	}
	if err = job.ranks[peer].Put(within(t), wire.Rank(owner), op); !errors.Is(err, region.ErrKey) {
		return errors.Join(errors.New("put by a key that was taken back"), err)
	}
	if b != common {
		return b.Close(within(t))
	}
	return nil
}
