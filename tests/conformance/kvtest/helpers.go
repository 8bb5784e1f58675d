package kvtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
)

func mustClose(t *testing.T, kv metadata.KV) {
	t.Helper()
	if err := kv.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func mustUpdate(t *testing.T, kv metadata.KV, fn func(metadata.KVTxn) error) {
	t.Helper()
	if err := kv.Update(t.Context(), fn); err != nil {
		t.Fatalf("Update: %v", err)
	}
}

func mustView(t *testing.T, kv metadata.KV, fn func(metadata.KVTxn) error) {
	t.Helper()
	if err := kv.View(t.Context(), fn); err != nil {
		t.Fatalf("View: %v", err)
	}
}

// put sets pairs, passed as key, value, key, value and so on.
func put(t *testing.T, kv metadata.KV, pairs ...string) {
	t.Helper()
	mustUpdate(t, kv, func(tx metadata.KVTxn) error {
		for i := 0; i < len(pairs); i += 2 {
			if err := tx.Set([]byte(pairs[i]), []byte(pairs[i+1])); err != nil {
				return err
			}
		}
		return nil
	})
}

// changeRandomly makes changes that draw returns, where a nil value is a removal, in one
// transaction, and also in a model.
func changeRandomly(t *testing.T, kv metadata.KV, model map[string]string, changes int, draw func() (string, []byte)) {
	t.Helper()
	mustUpdate(t, kv, func(tx metadata.KVTxn) error {
		for range changes {
			key, value := draw()
			var err error
			if value == nil {
				delete(model, key)
				err = tx.Delete([]byte(key))
			} else {
				model[key] = string(value)
				err = tx.Set([]byte(key), value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// want returns an error unless the key has the value; "-" means that the key must be absent.
func want(tx metadata.KVTxn, key, value string) error {
	got, err := tx.Get([]byte(key))
	switch {
	case errors.Is(err, metadata.ErrNoKey) && value == "-":
		return nil
	case err != nil:
		return fmt.Errorf("get %q: %w", key, err)
	case string(got) != value:
		return fmt.Errorf("get %q = %.40q, want %.40q", key, got, value)
	}
	return nil
}

// collect returns the results of a scan, at most limit pairs; 0 means all.
func collect(tx metadata.KVTxn, prefix, from string, limit int) ([][2]string, error) {
	var pairs [][2]string
	var start []byte
	if from != "" {
		start = []byte(from)
	}
	err := tx.Scan([]byte(prefix), start, func(k, v []byte) (bool, error) {
		pairs = append(pairs, [2]string{string(k), string(v)})
		return limit == 0 || len(pairs) < limit, nil
	})
	return pairs, err
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// newRand returns random numbers with which a failed test can be repeated.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}
