package kvtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
)

func testViewSnapshot(t *testing.T, kv metadata.KV) {
	put(t, kv, "x", "1", "y", "1", "gone", "1")
	mustView(t, kv, func(tx metadata.KVTxn) error {
		if err := want(tx, "x", "1"); err != nil {
			return err
		}
		mustUpdate(t, kv, func(up metadata.KVTxn) error {
			return errors.Join(up.Set([]byte("x"), []byte("2")), up.Set([]byte("y"), []byte("2")),
				up.Set([]byte("z"), []byte("2")), up.Delete([]byte("gone")))
		})
		pairs, err := collect(tx, "", "", 0)
		if got := fmt.Sprint(pairs); got != "[[gone 1] [x 1] [y 1]]" {
			t.Errorf("an old view sees %s", got)
		}
		return errors.Join(err, want(tx, "y", "1"), want(tx, "z", "-"), want(tx, "gone", "1"))
	})
	mustView(t, kv, func(tx metadata.KVTxn) error {
		return errors.Join(want(tx, "x", "2"), want(tx, "z", "2"), want(tx, "gone", "-"))
	})
}

func testViewWithinUpdate(t *testing.T, kv metadata.KV) {
	put(t, kv, "x", "1")
	mustUpdate(t, kv, func(tx metadata.KVTxn) error {
		if err := tx.Set([]byte("x"), []byte("2")); err != nil {
			return err
		}
		return kv.View(t.Context(), func(view metadata.KVTxn) error { return want(view, "x", "1") })
	})
	mustView(t, kv, func(tx metadata.KVTxn) error { return want(tx, "x", "2") })
}

func counter(tx metadata.KVTxn, key []byte) (uint64, error) {
	data, err := tx.Get(key)
	if errors.Is(err, metadata.ErrNoKey) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(data), nil
}

func setCounter(tx metadata.KVTxn, key []byte, v uint64) error {
	return tx.Set(key, binary.BigEndian.AppendUint64(nil, v))
}

// together runs fn in n goroutines and reports their errors.
func together(t *testing.T, n int, fn func(worker int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := fn(i); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func testIncrements(t *testing.T, kv metadata.KV) {
	const workers, rounds = 8, 100
	key := []byte("counter")
	together(t, workers, func(int) error {
		for range rounds {
			err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
				v, err := counter(tx, key)
				if err != nil {
					return err
				}
				return setCounter(tx, key, v+1)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	mustView(t, kv, func(tx metadata.KVTxn) error {
		v, err := counter(tx, key)
		if v != workers*rounds {
			t.Errorf("counter is %d, want %d", v, workers*rounds)
		}
		return err
	})
}

// testWriteSkew lets two workers each read two counters and raise their own as long as the sum
// is below a bound. With snapshots alone the sum could exceed it.
func testWriteSkew(t *testing.T, kv metadata.KV) {
	const bound = 50
	keys := [][]byte{[]byte("left"), []byte("right")}
	for round := range 20 {
		mustUpdate(t, kv, func(tx metadata.KVTxn) error {
			return errors.Join(setCounter(tx, keys[0], bound-5), setCounter(tx, keys[1], 0))
		})
		together(t, 4, func(worker int) error {
			for range 5 {
				err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
					a, err := counter(tx, keys[0])
					b, err2 := counter(tx, keys[1])
					if err = errors.Join(err, err2); err != nil || a+b >= bound {
						return err
					}
					own := [2]uint64{a, b}[worker%2]
					return setCounter(tx, keys[worker%2], own+1)
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		mustView(t, kv, func(tx metadata.KVTxn) error {
			a, err := counter(tx, keys[0])
			b, err2 := counter(tx, keys[1])
			if a+b != bound {
				t.Errorf("round %d: the sum is %d, want %d", round, a+b, bound)
			}
			return errors.Join(err, err2)
		})
	}
}

// testAbsentKey lets many workers create the same key each time; exactly one may find it
// absent.
func testAbsentKey(t *testing.T, kv metadata.KV) {
	for round := range 40 {
		key := fmt.Appendf(nil, "slot%d", round)
		var winners atomic.Int32
		together(t, 8, func(int) error {
			won := false
			err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
				_, err := tx.Get(key)
				if won = errors.Is(err, metadata.ErrNoKey); won {
					return tx.Set(key, []byte("taken"))
				}
				return err
			})
			if err == nil && won {
				winners.Add(1)
			}
			return err
		})
		if n := winners.Load(); n != 1 {
			t.Errorf("round %d: %d winners", round, n)
		}
	}
}

// testTransfers moves amounts between accounts while other workers scan them all: no view may
// see the total change.
func testTransfers(t *testing.T, kv metadata.KV) {
	const accounts, each = 16, 1000
	account := func(i int) []byte { return fmt.Appendf(nil, "account%02d", i) }
	mustUpdate(t, kv, func(tx metadata.KVTxn) error {
		for i := range accounts {
			if err := setCounter(tx, account(i), each); err != nil {
				return err
			}
		}
		return nil
	})
	together(t, 6, func(worker int) error {
		r := rand.New(rand.NewPCG(uint64(worker), 7))
		for range 150 {
			var err error
			if worker < 4 {
				err = transfer(t, kv, account(r.IntN(accounts)), account(r.IntN(accounts)), r.Uint64N(50))
			} else {
				err = kv.View(t.Context(), func(tx metadata.KVTxn) error { return sumIs(tx, accounts*each) })
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	mustView(t, kv, func(tx metadata.KVTxn) error { return sumIs(tx, accounts*each) })
}

func transfer(t *testing.T, kv metadata.KV, from, to []byte, amount uint64) error {
	t.Helper()
	return kv.Update(t.Context(), func(tx metadata.KVTxn) error {
		a, err := counter(tx, from)
		if err != nil || a < amount {
			return err
		}
		if err = setCounter(tx, from, a-amount); err != nil {
			return err
		}
		b, err := counter(tx, to)
		if err != nil {
			return err
		}
		return setCounter(tx, to, b+amount)
	})
}

func sumIs(tx metadata.KVTxn, want uint64) error {
	var sum uint64
	err := tx.Scan([]byte("account"), nil, func(_, value []byte) (bool, error) {
		sum += binary.BigEndian.Uint64(value)
		return true, nil
	})
	if err == nil && sum != want {
		err = fmt.Errorf("the accounts sum to %d, want %d", sum, want)
	}
	return err
}
