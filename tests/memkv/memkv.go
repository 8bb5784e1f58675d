package memkv

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/hmcfs/hmcfs/metadata"
)

// pair is one key with its value. Neither changes once it is in a tree.
type pair struct {
	key   string
	value []byte
}

func less(a, b pair) bool { return a.key < b.key }

// KV is a metadata.KV in memory. Its contents are lost at the end of the process.
type KV struct {
	// current is the tree of the last commit; it is never modified.
	current atomic.Pointer[btree.BTreeG[pair]]
	closed  atomic.Bool
	mu      sync.Mutex // held by the one transaction that writes
}

var _ metadata.KV = (*KV)(nil)

// New returns an empty store.
func New() *KV {
	kv := &KV{}
	// Small nodes, since every transaction copies those that it changes.
	options := btree.Options{NoLocks: true, Degree: 16}
	kv.current.Store(btree.NewBTreeGOptions(less, options))
	return kv
}

// View runs fn on the last commit; see metadata.KV.
func (kv *KV) View(ctx context.Context, fn func(metadata.KVTxn) error) error {
	if err := kv.begin(ctx); err != nil {
		return err
	}
	return fn(&txn{tree: kv.current.Load(), readOnly: true})
}

// Update runs fn once, on a copy, which becomes the current tree if fn succeeds; see
// metadata.KV.
func (kv *KV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	if err := kv.begin(ctx); err != nil {
		return err
	}
	kv.mu.Lock()
	defer kv.mu.Unlock()
	tree := kv.current.Load().IsoCopy()
	if err := fn(&txn{tree: tree}); err != nil {
		return err
	}
	if err := kv.begin(ctx); err != nil {
		return err
	}
	kv.current.Store(tree)
	return nil
}

// Copy returns a store with the current contents of this one.
func (kv *KV) Copy() *KV {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	other := &KV{}
	other.current.Store(kv.current.Load().IsoCopy())
	return other
}

func (kv *KV) begin(ctx context.Context) error {
	if kv.closed.Load() {
		return metadata.ErrClosed
	}
	return ctx.Err()
}

// Close makes all further calls return ErrClosed.
func (kv *KV) Close() error {
	if kv.closed.Swap(true) {
		return metadata.ErrClosed
	}
	return nil
}

type txn struct {
	tree     *btree.BTreeG[pair]
	readOnly bool
}

func (t *txn) Get(key []byte) ([]byte, error) {
	p, ok := t.tree.Get(pair{key: string(key)})
	if !ok {
		return nil, metadata.ErrNoKey
	}
	return p.value, nil
}

func (t *txn) Set(key, value []byte) error {
	if t.readOnly {
		return metadata.ErrReadOnly
	}
	t.tree.Set(pair{key: string(key), value: append([]byte{}, value...)})
	return nil
}

func (t *txn) Delete(key []byte) error {
	if t.readOnly {
		return metadata.ErrReadOnly
	}
	t.tree.Delete(pair{key: string(key)})
	return nil
}

func (t *txn) Scan(prefix, from []byte, fn func(key, value []byte) (bool, error)) error {
	start := max(string(prefix), string(from))
	var failed error
	t.tree.Ascend(pair{key: start}, func(p pair) bool {
		if !strings.HasPrefix(p.key, string(prefix)) {
			return false
		}
		var more bool
		more, failed = fn([]byte(p.key), p.value)
		return more && failed == nil
	})
	return failed
}
