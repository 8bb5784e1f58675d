package faulty_test

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/conformance/kvtest"
	"github.com/hmcfs/hmcfs/tests/fault/metadata/faulty"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// TestConformance makes sure that the wrapper itself changes nothing.
func TestConformance(t *testing.T) {
	kvtest.Run(t, func(*testing.T) metadata.KV {
		return faulty.Wrap(memkv.New(), new(faulty.Counter).Inject)
	})
}

func TestEachOperationFails(t *testing.T) {
	script := func(kv metadata.KV) error {
		err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
			if _, err := tx.Get([]byte("a")); err != nil && !errors.Is(err, metadata.ErrNoKey) {
				return err
			}
			if err := tx.Set([]byte("a"), []byte("1")); err != nil {
				return err
			}
			return tx.Delete([]byte("b"))
		})
		if err != nil {
			return err
		}
		return kv.View(t.Context(), func(tx metadata.KVTxn) error {
			return tx.Scan(nil, nil, func(_, _ []byte) (bool, error) { return true, nil })
		})
	}
	order := []faulty.Op{
		faulty.Update, faulty.Get, faulty.Set, faulty.Delete, faulty.Commit, faulty.View, faulty.Scan,
	}
	for i, op := range order {
		var seen []faulty.Op
		var c faulty.Counter
		base := memkv.New()
		kv := faulty.Wrap(base, func(op faulty.Op) error {
			seen = append(seen, op)
			return c.Inject(op)
		})
		c.Arm(i)
		if err := script(kv); !errors.Is(err, faulty.ErrInjected) {
			t.Errorf("script with operation %d (%v) failing = %v", i, op, err)
		}
		if !c.Disarm() || seen[len(seen)-1] != op || len(seen) != i+1 {
			t.Errorf("operation %d: %v were run, the last should be %v", i, seen, op)
		}
		written := base.View(t.Context(), func(tx metadata.KVTxn) error {
			_, err := tx.Get([]byte("a"))
			return err
		}) == nil
		if written != (i > 4) {
			t.Errorf("%v failed, and written is %v", op, written)
		}
		if err := script(kv); err != nil {
			t.Errorf("script after Disarm: %v", err)
		}
	}
}
