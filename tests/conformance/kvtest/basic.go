package kvtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
)

func testGetSetDelete(t *testing.T, kv metadata.KV) {
	put(t, kv, "a", "1", "b", "", "a\x00", "zero", "\xff\xff", "high")
	mustView(t, kv, func(tx metadata.KVTxn) error {
		return errors.Join(want(tx, "a", "1"), want(tx, "b", ""), want(tx, "a\x00", "zero"),
			want(tx, "\xff\xff", "high"), want(tx, "A", "-"), want(tx, "\xff", "-"))
	})
	mustUpdate(t, kv, func(tx metadata.KVTxn) error {
		return errors.Join(tx.Delete([]byte("a")), tx.Delete([]byte("never")))
	})
	mustView(t, kv, func(tx metadata.KVTxn) error {
		return errors.Join(want(tx, "a", "-"), want(tx, "a\x00", "zero"), want(tx, "never", "-"))
	})
	put(t, kv, "a", "again")
	mustView(t, kv, func(tx metadata.KVTxn) error { return want(tx, "a", "again") })
}

func testOwnWrites(t *testing.T, kv metadata.KV) {
	put(t, kv, "x", "old", "y", "kept")
	mustUpdate(t, kv, func(tx metadata.KVTxn) error {
		return errors.Join(
			want(tx, "x", "old"),
			tx.Set([]byte("x"), []byte("new")), want(tx, "x", "new"),
			tx.Delete([]byte("x")), want(tx, "x", "-"),
			tx.Set([]byte("x"), []byte("last")), want(tx, "x", "last"),
			tx.Set([]byte("z"), []byte("gone")), tx.Delete([]byte("z")), want(tx, "z", "-"),
		)
	})
	mustView(t, kv, func(tx metadata.KVTxn) error {
		return errors.Join(want(tx, "x", "last"), want(tx, "y", "kept"), want(tx, "z", "-"))
	})
}

func testRollback(t *testing.T, kv metadata.KV) {
	put(t, kv, "x", "old")
	boom := errors.New("boom")
	err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
		return errors.Join(tx.Set([]byte("x"), []byte("new")), tx.Set([]byte("y"), nil), boom)
	})
	if !errors.Is(err, boom) {
		t.Errorf("Update = %v, want what the function returned", err)
	}
	mustView(t, kv, func(tx metadata.KVTxn) error {
		return errors.Join(want(tx, "x", "old"), want(tx, "y", "-"))
	})
}

func testViewReadOnly(t *testing.T, kv metadata.KV) {
	put(t, kv, "x", "old")
	mustView(t, kv, func(tx metadata.KVTxn) error {
		if err := tx.Set([]byte("x"), []byte("new")); !errors.Is(err, metadata.ErrReadOnly) {
			t.Errorf("Set in View = %v, want ErrReadOnly", err)
		}
		if err := tx.Delete([]byte("x")); !errors.Is(err, metadata.ErrReadOnly) {
			t.Errorf("Delete in View = %v, want ErrReadOnly", err)
		}
		return want(tx, "x", "old")
	})
}

func testBigValues(t *testing.T, kv metadata.KV) {
	r := newRand(t)
	sizes := []int{4095, 4096, 65536, 65537, 300_001, 1_000_000}
	values := make([][]byte, len(sizes))
	for i, size := range sizes {
		values[i] = randomBytes(r, size)
		mustUpdate(t, kv, func(tx metadata.KVTxn) error {
			return tx.Set(fmt.Appendf(nil, "big%d", i), values[i])
		})
	}
	mustView(t, kv, func(tx metadata.KVTxn) error {
		for i := range sizes {
			got, err := tx.Get(fmt.Appendf(nil, "big%d", i))
			if err != nil {
				return err
			}
			if !bytes.Equal(got, values[i]) {
				t.Errorf("value of %d bytes came back different", sizes[i])
			}
		}
		return nil
	})
}

// testBigTransaction writes as many keys as every store must accept at once.
func testBigTransaction(t *testing.T, kv metadata.KV) {
	const n = 8192
	mustUpdate(t, kv, func(tx metadata.KVTxn) error {
		for i := range n {
			value := fmt.Appendf(nil, "%0*d", 90+i%20, i)
			if err := tx.Set(fmt.Appendf(nil, "many%07d", i), value); err != nil {
				return fmt.Errorf("key %d: %w", i, err)
			}
		}
		return nil
	})
	mustView(t, kv, func(tx metadata.KVTxn) error {
		pairs, err := collect(tx, "many", "", 0)
		if len(pairs) != n {
			t.Errorf("%d keys of %d are there", len(pairs), n)
		}
		for i, p := range pairs {
			if w := fmt.Sprintf("%0*d", 90+i%20, i); p[1] != w {
				t.Fatalf("value %d is %q, want %q", i, p[1], w)
			}
		}
		return err
	})
}

func testContext(t *testing.T, kv metadata.KV) {
	put(t, kv, "x", "old")
	ctx, cancel := context.WithCancel(t.Context())
	err := kv.Update(ctx, func(tx metadata.KVTxn) error {
		cancel()
		return tx.Set([]byte("x"), []byte("new"))
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Update whose context ends before the commit = %v", err)
	}
	never := func(metadata.KVTxn) error {
		t.Error("a transaction runs although its context has ended")
		return nil
	}
	if err := kv.Update(ctx, never); !errors.Is(err, context.Canceled) {
		t.Errorf("Update after the end = %v", err)
	}
	if err := kv.View(ctx, never); !errors.Is(err, context.Canceled) {
		t.Errorf("View after the end = %v", err)
	}
	mustView(t, kv, func(tx metadata.KVTxn) error { return want(tx, "x", "old") })
}

// testValuesKept checks that a store does not use the caller's slices after the transaction.
func testValuesKept(t *testing.T, kv metadata.KV) {
	key, value := []byte("key"), []byte("value")
	mustUpdate(t, kv, func(tx metadata.KVTxn) error { return tx.Set(key, value) })
	copy(key, "xxx")
	copy(value, "yyyyy")
	mustView(t, kv, func(tx metadata.KVTxn) error {
		return errors.Join(want(tx, "key", "value"), want(tx, "xxx", "-"))
	})
}

func testClosed(t *testing.T, kv metadata.KV) {
	put(t, kv, "x", "1")
	mustClose(t, kv)
	never := func(metadata.KVTxn) error {
		t.Error("a transaction runs although the store is closed")
		return nil
	}
	if err := kv.View(t.Context(), never); !errors.Is(err, metadata.ErrClosed) {
		t.Errorf("View = %v, want ErrClosed", err)
	}
	if err := kv.Update(t.Context(), never); !errors.Is(err, metadata.ErrClosed) {
		t.Errorf("Update = %v, want ErrClosed", err)
	}
}

func testReopen(t *testing.T, open Opener) {
	r := newRand(t)
	model := map[string]string{}
	for range 4 {
		kv := open(t)
		for range 50 {
			changeRandomly(t, kv, model, 20, func() (key string, value []byte) {
				key = fmt.Sprintf("k%03d", r.IntN(400))
				if r.IntN(3) == 0 {
					return key, nil
				}
				return key, randomBytes(r, r.IntN(3000))
			})
		}
		mustClose(t, kv)
		kv = open(t)
		mustView(t, kv, func(tx metadata.KVTxn) error {
			pairs, err := collect(tx, "", "", 0)
			if len(pairs) != len(model) {
				t.Errorf("%d keys after reopening, want %d", len(pairs), len(model))
			}
			for _, p := range pairs {
				if v, ok := model[p[0]]; !ok || v != p[1] {
					t.Errorf("key %q is wrong after reopening", p[0])
				}
			}
			return err
		})
		mustClose(t, kv)
	}
}
