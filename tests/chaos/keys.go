package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/chaos/judge"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/lab"
)

const (
	// activeKeys is the number of keys in use at a time. A key is replaced by a new one
	// after keyUses operations, so that histories stay short enough to be checked.
	activeKeys = 6
	keyUses    = 30
)

// keyring holds the keys in use and the history of all keys.
type keyring struct {
	history judge.Keys

	mu sync.Mutex
	// +checklocks:mu
	active [activeKeys]int
	// +checklocks:mu
	uses [activeKeys]int
	// +checklocks:mu
	last int
}

func newKeyring() *keyring {
	k := &keyring{last: activeKeys}
	for i := range activeKeys {
		k.active[i] = i + 1
	}
	return k
}

// pick returns a key for the next operation.
func (k *keyring) pick(chance int) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := chance % activeKeys
	if k.uses[i]++; k.uses[i] > keyUses {
		k.last++
		k.active[i], k.uses[i] = k.last, 1
	}
	return keyName(k.active[i])
}

func keyName(i int) string { return fmt.Sprintf("k%d", i) }

// made returns the number of keys used so far.
func (k *keyring) made() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// keyStep performs a random operation on a random key.
func (r *run) keyStep(ctx context.Context, w *hand, n *lab.Node) {
	key := r.keys.pick(w.random.IntN(activeKeys))
	o := judge.KeyOp{Key: key, Node: n.Name, Call: r.now()}
	switch c := w.random.IntN(10); {
	case c < 3:
		if !r.setKey(ctx, n, &o) {
			return
		}
	case c < 5:
		r.getKey(ctx, n, &o)
	case c < 6:
		o.Kind = judge.Exist
		a := r.ask1(ctx, "exist", n, 0, "exist", key)
		if err := a.err(); err != nil {
			o.Error = err.Error()
		} else if o.Outcome = judge.Done; *a.Exists {
			o.Value = 1
		}
	case c < 7:
		if !r.keyLink(n, &o) {
			return
		}
	case c < 8:
		const wait = time.Second
		o.Kind = judge.Wait
		if a := r.ask1(ctx, "wait", n, wait, "wait", "--timeout", wait.String(), key); a.OK {
			o.Outcome = judge.Done
		}
	default:
		o.Kind = judge.Del
		if a := r.ask1(ctx, "del", n, 0, "del", key); a.OK {
			o.Outcome = judge.Done
		} else {
			o.Error = a.err().Error()
		}
	}
	o.Return = r.now()
	r.keys.history.Add(o)
}

// valueBytes returns the content of a value: its number, followed by bytes that depend on
// it.
func valueBytes(value int) []byte {
	size := 500 + value*7919%20_000
	return append(binary.BigEndian.AppendUint64(nil, uint64(value)), kit.Bytes(uint64(value), 0, size)...)
}

// valueOf returns the number of the value with a given content, which it checks.
func valueOf(content []byte) (int, error) {
	if len(content) < 8 {
		return 0, fmt.Errorf("%d bytes", len(content))
	}
	value := int(binary.BigEndian.Uint64(content))
	if value <= 0 || value > 1<<40 {
		return 0, fmt.Errorf("value %d", value)
	}
	if want := valueBytes(value); len(content) != len(want) || kit.FirstDiff(content, want) >= 0 {
		return 0, fmt.Errorf("%d bytes that begin with value %d, which has %d, differ at byte %d",
			len(content), value, len(want), kit.FirstDiff(content, want))
	}
	return value, nil
}

// setKey writes a file and gives it the key. It returns false if the key was certainly not
// changed.
func (r *run) setKey(ctx context.Context, n *lab.Node, o *judge.KeyOp) bool {
	o.Kind, o.Value = judge.Set, r.number()
	path := n.Path("host", fmt.Sprintf("value%d", o.Value))
	var err error
	if !r.within("write a value", path, func() error { err = os.WriteFile(path, valueBytes(o.Value), 0o644); return err }) || err != nil {
		return false
	}
	o.Call = r.now()
	switch a := r.ask1(ctx, "mset", n, 0, "mset", o.Key+"="+path); {
	case a.OK:
		o.Outcome = judge.Done
	case a.Code == "exists":
		return false
	default:
		o.Error = a.err().Error()
	}
	return true
}

// getKey reads the object that has a key.
func (r *run) getKey(ctx context.Context, n *lab.Node, o *judge.KeyOp) {
	o.Kind = judge.Get
	to := filepath.Join(r.dir, fmt.Sprintf("get%d", r.number()))
	defer func() { _ = os.Remove(to) }() // it may not exist
	a := r.ask1(ctx, "mget", n, 0, "mget", o.Key+"="+to)
	switch {
	case a.OK:
		content, err := os.ReadFile(to)
		if err == nil {
			o.Value, err = valueOf(content)
		}
		if err != nil {
			r.violate(judge.Violation{Property: "wrong bytes", Text: fmt.Sprintf("mget of %s on %s at %.3f s: %v", o.Key, n.Name, o.Call.Seconds(), err)})
			o.Error = err.Error()
			return
		}
		o.Outcome = judge.Done
	case a.Code == "not_found":
		o.Outcome = judge.Done
	default:
		o.Error = a.err().Error()
	}
}

// readKey reads the link of a key. If the mount point has no mount at the moment, because
// one daemon replaces another, that is not reported as a missing key.
//
// Errors: os.ErrNotExist.
func readKey(n *lab.Node, key string) error {
	dir, err := os.OpenFile(n.Path("keys"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("not mounted: %v", err) //nolint:errorlint // it is not the key that is not there
	}
	defer func() { _ = dir.Close() }() // opened with O_PATH only
	_, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), key))
	return err
}

// keyLink looks up the key in keys/. It returns false if the lookup hangs.
func (r *run) keyLink(n *lab.Node, o *judge.KeyOp) bool {
	o.Kind = judge.Exist
	var err error
	path := n.Path("keys", o.Key)
	if !r.within("readlink of a key", path, func() error {
		err = readKey(n, o.Key)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}) {
		return false
	}
	switch {
	case err == nil:
		o.Outcome, o.Value = judge.Done, 1
	case errors.Is(err, os.ErrNotExist):
		o.Outcome = judge.Done
	default:
		o.Error = err.Error()
	}
	return true
}
