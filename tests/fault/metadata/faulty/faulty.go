package faulty

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/metadata"
)

// Op is a kind of operation of a metadata.KV.
type Op int

// The operations. Commit is the moment at which an update's function has succeeded and nothing
// has been written yet.
const (
	View Op = iota
	Update
	Get
	Set
	Delete
	Scan
	Commit
)

// String names the operation.
func (op Op) String() string {
	names := [...]string{"view", "update", "get", "set", "delete", "scan", "commit"}
	if op < 0 || int(op) >= len(names) {
		return fmt.Sprintf("op %d", int(op))
	}
	return names[op]
}

// ErrInjected is the error that this package's injectors return.
var ErrInjected = errors.New("faulty: injected failure")

// Injector is called before each operation, and makes it fail by returning an error. It is
// called concurrently.
type Injector func(op Op) error

// Counter is an injector that fails one operation, counted from the last call of Arm. The zero
// Counter fails none.
type Counter struct {
	left atomic.Int64
	hit  atomic.Bool
}

// Arm makes the operation that follows n others fail.
func (c *Counter) Arm(n int) {
	c.hit.Store(false)
	c.left.Store(int64(n) + 1)
}

// Disarm makes no further operation fail, and reports whether one has failed since Arm.
func (c *Counter) Disarm() bool {
	c.left.Store(0)
	return c.hit.Load()
}

// Inject implements Injector.
func (c *Counter) Inject(op Op) error {
	if c.left.Load() <= 0 || c.left.Add(-1) != 0 {
		return nil
	}
	c.hit.Store(true)
	return fmt.Errorf("%w: %v", ErrInjected, op)
}

// KV is a metadata.KV whose operations an injector can make fail.
type KV struct {
	kv     metadata.KV
	inject Injector
}

var _ metadata.KV = (*KV)(nil)

// Wrap makes the operations of kv fail when inject returns an error.
func Wrap(kv metadata.KV, inject Injector) *KV { return &KV{kv: kv, inject: inject} }

// View calls the wrapped View, unless the injector makes it fail.
func (k *KV) View(ctx context.Context, fn func(metadata.KVTxn) error) error {
	if err := k.inject(View); err != nil {
		return err
	}
	return k.kv.View(ctx, func(t metadata.KVTxn) error { return fn(&txn{t, k.inject}) })
}

// Update calls the wrapped Update, unless the injector makes it or its commit fail.
func (k *KV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	if err := k.inject(Update); err != nil {
		return err
	}
	return k.kv.Update(ctx, func(t metadata.KVTxn) error {
		if err := fn(&txn{t, k.inject}); err != nil {
			return err
		}
		return k.inject(Commit)
	})
}

// Close closes the wrapped KV.
func (k *KV) Close() error { return k.kv.Close() }

type txn struct {
	t      metadata.KVTxn
	inject Injector
}

func (t *txn) Get(key []byte) ([]byte, error) {
	if err := t.inject(Get); err != nil {
		return nil, err
	}
	return t.t.Get(key)
}

func (t *txn) Set(key, value []byte) error {
	if err := t.inject(Set); err != nil {
		return err
	}
	return t.t.Set(key, value)
}

func (t *txn) Delete(key []byte) error {
	if err := t.inject(Delete); err != nil {
		return err
	}
	return t.t.Delete(key)
}

func (t *txn) Scan(prefix, from []byte, fn func(key, value []byte) (bool, error)) error {
	if err := t.inject(Scan); err != nil {
		return err
	}
	return t.t.Scan(prefix, from, fn)
}
