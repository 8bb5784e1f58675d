package admin_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
)

// The keys that a fake client handles specially. All others succeed.
const (
	keyMissing = "missing"
	keyStuck   = "stuck" // until the context or the client ends
	keySkipped = "skipped"
	keyPanics  = "panics"
)

// fakeKeyed creates fake clients, and records their users.
type fakeKeyed struct {
	mu      sync.Mutex
	clients []*fakeClient
	callers []objects.Caller
	refuse  error
	listing []adminapi.Key
	broken  error // the error at the end of the listing
	queue   chan objects.Event
}

func (k *fakeKeyed) Begin(by objects.Caller, _ string) (hetero.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse != nil {
		return nil, k.refuse
	}
	c := &fakeClient{closed: make(chan struct{}), settle: map[string]func(error){}}
	k.clients, k.callers = append(k.clients, c), append(k.callers, by)
	return c, nil
}

func (k *fakeKeyed) Keys(_ context.Context, _ objects.Caller, asked adminapi.KeysRequest, each func(adminapi.Key) error) error {
	k.mu.Lock()
	listing, broken := k.listing, k.broken
	k.mu.Unlock()
	for _, key := range listing {
		if !strings.HasPrefix(key.Key, asked.Prefix) || asked.Published != (key.State == "published") || key.Key <= asked.After {
			continue
		}
		if err := each(key); err != nil {
			return err
		}
	}
	return broken
}

// list sets the listing, and the error that ends it.
func (k *fakeKeyed) list(keys []adminapi.Key, broken error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listing, k.broken = keys, broken
}

// refuseAll makes all further requests for a client fail.
func (k *fakeKeyed) refuseAll(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = err
}

func (k *fakeKeyed) Listen(objects.Caller) admin.EventQueue { return fakeQueue{k.queue} }

// last is the most recently created client.
func (k *fakeKeyed) last() *fakeClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.clients[len(k.clients)-1]
}

// caller is the user of the most recently created client.
func (k *fakeKeyed) caller() objects.Caller {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.callers[len(k.callers)-1]
}

// fakeQueue returns the events of a channel.
type fakeQueue struct{ events chan objects.Event }

func (q fakeQueue) Next(ctx context.Context) (objects.Event, error) {
	select {
	case e := <-q.events:
		return e, nil
	case <-ctx.Done():
		return objects.Event{}, ctx.Err()
	}
}

func (fakeQueue) Close() {}

// fakeClient does nothing, and records its calls.
type fakeClient struct {
	closed chan struct{}

	mu     sync.Mutex
	asked  adminapi.Call
	verb   string
	memory hetero.Memory
	bytes  []byte // of the memory
	settle map[string]func(error)
	closes int
	whole  error // the error of all calls
	under  int   // calls in progress
}

func (c *fakeClient) note(verb string, q adminapi.Call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The server uses the memory of the call again once it has returned.
	q.Keys, q.Lists = slices.Clone(q.Keys), slices.Clone(q.Lists)
	for i := range q.Lists {
		q.Lists[i].Blobs = slices.Clone(q.Lists[i].Blobs)
	}
	c.verb, c.asked = verb, q
	return c.whole
}

// last returns the most recent call.
func (c *fakeClient) last() (string, adminapi.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verb, c.asked
}

func (c *fakeClient) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = err
}

// ended returns how often the client was closed.
func (c *fakeClient) ended() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closes
}

// waiting returns the number of calls in progress.
func (c *fakeClient) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.under
}

func (c *fakeClient) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under += n
}

// run returns the results for the keys of a call.
func (c *fakeClient) run(ctx context.Context, verb string, q adminapi.Call) (hetero.Results, error) {
	if err := c.note(verb, q); err != nil {
		return nil, err
	}
	return c.results(ctx, q)
}

func (c *fakeClient) results(ctx context.Context, q adminapi.Call) (hetero.Results, error) {
	r := make(hetero.Results, len(q.Keys))
	for i, key := range q.Keys {
		r[i] = hetero.Result{Key: key, Skipped: key == keySkipped}
		switch key {
		case keyMissing:
			r[i].Err = hetero.ErrNotFound
		case keyStuck:
			r[i].Err = c.stuck(ctx)
		case keyPanics:
			panic("a fault of the client behind the session")
		}
	}
	return r, r.Outcome()
}

func (c *fakeClient) stuck(ctx context.Context) error {
	c.count(1)
	defer c.count(-1)
	select {
	case <-ctx.Done():
		return hetero.ContextError(ctx.Err())
	case <-c.closed:
		return hetero.ErrClosed
	}
}

func (c *fakeClient) batch(ctx context.Context, verb string, q adminapi.Call) (*hetero.Batch, error) {
	if err := c.note(verb, q); err != nil {
		return nil, err
	}
	b, settle := hetero.NewBatch()
	go func() {
		// It is not noted again: the next call may have been by then.
		r, _ := c.results(context.WithoutCancel(ctx), q)
		settle(r)
	}()
	return b, nil
}

func (c *fakeClient) PreRegister(_ context.Context, m hetero.Memory) (hetero.MemoryID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory, c.bytes = m, nil
	files := m.Files
	if m.File != nil {
		files = []*os.File{m.File}
	}
	for _, f := range files {
		part := make([]byte, memorySize)
		n, _ := f.ReadAt(part, 0)
		c.bytes = append(c.bytes, part[:n]...)
	}
	return 7, c.whole
}

// registered returns the most recently registered memory, and its content.
func (c *fakeClient) registered() (hetero.Memory, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory, c.bytes
}

func (c *fakeClient) Unregister(_ context.Context, id hetero.MemoryID) error {
	return c.note("unregister", adminapi.Call{Memory: id})
}

func (c *fakeClient) futures(keys []string) []*hetero.Future {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*hetero.Future, len(keys))
	for i, key := range keys {
		f, settle := hetero.NewFuture(key)
		if out[i] = f; key == keyMissing {
			settle(hetero.ErrNotFound)
			continue
		}
		var once sync.Once
		c.settle[key] = func(err error) { once.Do(func() { settle(err) }) }
	}
	return out
}

// end completes the future of a key, unless Close has done so before.
func (c *fakeClient) end(key string, err error) {
	c.mu.Lock()
	settle := c.settle[key]
	c.mu.Unlock()
	if settle != nil {
		settle(err)
	}
}

func (c *fakeClient) DevPublish(_ context.Context, keys []string, lists []hetero.DeviceBlobList) ([]*hetero.Future, error) {
	if err := c.note("publish", adminapi.Call{Keys: keys, Lists: lists}); err != nil {
		return nil, err
	}
	return c.futures(keys), nil
}

func (c *fakeClient) DevSubscribe(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.SubscribeOptions,
) ([]*hetero.Future, error) {
	if err := c.note("subscribe", adminapi.Call{Keys: keys, Lists: lists, Timeout: adminapi.Duration(o.Timeout)}); err != nil {
		return nil, err
	}
	futures := c.futures(keys)
	context.AfterFunc(ctx, func() {
		for _, key := range keys {
			if key != keyMissing {
				c.end(key, hetero.ErrInterrupted)
			}
		}
	})
	return futures, nil
}

func (c *fakeClient) DevMSet(ctx context.Context, keys []string, lists []hetero.DeviceBlobList) (hetero.Results, error) {
	return c.run(ctx, "mset", adminapi.Call{Keys: keys, Lists: lists})
}

func getCall(keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions) adminapi.Call {
	return adminapi.Call{Keys: keys, Lists: lists, Timeout: adminapi.Duration(o.Timeout), Replica: o.Replica}
}

func setCall(keys []string, lists []hetero.DeviceBlobList, o hetero.SetOptions) adminapi.Call {
	return adminapi.Call{Keys: keys, Lists: lists, Existing: o.Existing, TTL: adminapi.Duration(o.TTL)}
}

func (c *fakeClient) DevMGet(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions,
) (hetero.Results, error) {
	return c.run(ctx, "mget", getCall(keys, lists, o))
}

func (c *fakeClient) DevDelete(ctx context.Context, keys []string) (hetero.Results, error) {
	return c.run(ctx, "delete", adminapi.Call{Keys: keys})
}

func (c *fakeClient) DevLocalDelete(ctx context.Context, keys []string) (hetero.Results, error) {
	return c.run(ctx, "local-delete", adminapi.Call{Keys: keys})
}

func (c *fakeClient) AsyncDevDelete(ctx context.Context, keys []string) (*hetero.Batch, error) {
	return c.batch(ctx, "delete async", adminapi.Call{Keys: keys})
}

func (c *fakeClient) MSetD2H(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.SetOptions,
) (hetero.Results, error) {
	return c.run(ctx, "d2h", setCall(keys, lists, o))
}

func (c *fakeClient) MGetH2D(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions,
) (hetero.Results, error) {
	return c.run(ctx, "h2d", getCall(keys, lists, o))
}

func (c *fakeClient) AsyncMSetD2H(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.SetOptions,
) (*hetero.Batch, error) {
	return c.batch(ctx, "d2h async", setCall(keys, lists, o))
}

func (c *fakeClient) AsyncMGetH2D(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.GetOptions,
) (*hetero.Batch, error) {
	return c.batch(ctx, "h2d async", getCall(keys, lists, o))
}

func (c *fakeClient) Delete(ctx context.Context, keys []string) (hetero.Results, error) {
	return c.DevDelete(ctx, keys)
}

func (c *fakeClient) Exist(_ context.Context, keys []string) ([]bool, error) {
	if err := c.note("exist", adminapi.Call{Keys: keys}); err != nil {
		return nil, err
	}
	there := make([]bool, len(keys))
	for i, key := range keys {
		there[i] = key != keyMissing
	}
	return there, nil
}

func (c *fakeClient) GetMetaInfo(_ context.Context, keys []string, published bool) ([]hetero.MetaInfo, error) {
	if err := c.note("info", adminapi.Call{Keys: keys, Published: published}); err != nil {
		return nil, err
	}
	infos, err := make([]hetero.MetaInfo, len(keys)), hetero.ErrNotFound
	for i, key := range keys {
		infos[i] = hetero.MetaInfo{Key: key, Err: hetero.ErrNotFound}
		if key != keyMissing {
			infos[i], err = hetero.MetaInfo{Key: key, Device: "sim1", Blobs: []devices.Size{3, 4}, Size: 7}, nil
		}
	}
	return infos, err
}

func (c *fakeClient) GenerateKey(string) (string, error) { return "", errors.New("nobody asks") }

func (c *fakeClient) Expire(ctx context.Context, keys []string, ttl time.Duration) (hetero.Results, error) {
	return c.run(ctx, "expire", adminapi.Call{Keys: keys, TTL: adminapi.Duration(ttl)})
}

func (c *fakeClient) Each(ctx context.Context, keys []string, published bool, timeout time.Duration, came func(int, error)) error {
	r, err := c.run(ctx, "wait", adminapi.Call{Keys: keys, Published: published, Timeout: adminapi.Duration(timeout)})
	if r == nil {
		return err
	}
	for i, one := range r {
		came(i, one.Err)
	}
	return nil
}

func (c *fakeClient) Wait(context.Context, []string, bool, time.Duration) (hetero.Results, error) {
	return nil, errors.New("nobody asks")
}

func (c *fakeClient) Close() error {
	c.mu.Lock()
	c.closes++
	first := c.closes == 1
	settle := c.settle
	c.settle = map[string]func(error){}
	c.mu.Unlock()
	if first {
		close(c.closed)
	}
	for _, end := range settle {
		end(hetero.ErrWithdrawn)
	}
	return nil
}

// listOf is one blob for each key.
func listOf(n int) []hetero.DeviceBlobList {
	return slices.Repeat([]hetero.DeviceBlobList{{
		Device: "sim0", Blobs: []hetero.Blob{{Memory: 7, Off: 1 << 40, Size: 4096}, {Memory: 7, Size: 1}},
	}}, n)
}

// memoryText is memory of one descriptor.
func memoryText() *share.Memory {
	first := 0
	return &share.Memory{
		Family: "sim", PID: os.Getpid(), Size: memorySize,
		Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: memorySize}},
	}
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *fakeClient) DevClaim(_ context.Context, key string, o hetero.ClaimOptions) (hetero.MetaInfo, error) {
	err := c.note("claim", adminapi.Call{Keys: []string{key}, Timeout: adminapi.Duration(o.Timeout), Memory: o.Target})
	return hetero.MetaInfo{Key: key, Size: 4, Blobs: []devices.Size{1, 3}}, err
}

func (c *fakeClient) DevFetch(_ context.Context, key string, to hetero.DeviceBlobList) error {
	return c.note("fetch", adminapi.Call{Keys: []string{key}, Lists: []hetero.DeviceBlobList{to}})
}

func (c *fakeClient) DevSettle(_ context.Context, key string, received bool) error {
	return c.note("settle", adminapi.Call{Keys: []string{key}, Received: received})
}
