package metadata

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
)

// mapKV is a KV for tests inside the package, which cannot import memkv.
type mapKV struct{ data map[string]string }

func (kv *mapKV) View(_ context.Context, fn func(KVTxn) error) error {
	return fn(mapTxn(maps.Clone(kv.data)))
}

func (kv *mapKV) Update(_ context.Context, fn func(KVTxn) error) error {
	data := maps.Clone(kv.data)
	if err := fn(mapTxn(data)); err != nil {
		return err
	}
	kv.data = data
	return nil
}

func (kv *mapKV) Close() error { return nil }

type mapTxn map[string]string

func (t mapTxn) Get(key []byte) ([]byte, error) {
	v, ok := t[string(key)]
	if !ok {
		return nil, ErrNoKey
	}
	return []byte(v), nil
}

func (t mapTxn) Set(key, value []byte) error {
	t[string(key)] = string(value)
	return nil
}

func (t mapTxn) Delete(key []byte) error {
	delete(t, string(key))
	return nil
}

func (t mapTxn) Scan(prefix, from []byte, fn func(key, value []byte) (bool, error)) error {
	for _, k := range slices.Sorted(maps.Keys(t)) {
		if !strings.HasPrefix(k, string(prefix)) || k < string(from) {
			continue
		}
		if more, err := fn([]byte(k), []byte(t[k])); err != nil || !more {
			return err
		}
	}
	return nil
}

// newMapStore opens a store on a mapKV, with two devices.
func newMapStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), &mapKV{data: map[string]string{}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []DeviceName{"sim0", "sim1"} {
		if _, err := s.EnsureDevice(t.Context(), name, 0o755, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
