package local

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// closeWait bounds the time that Close waits for calls to end.
const closeWait = 2 * time.Second

// Options configures a client.
type Options struct {
	// Store holds the objects. Required. It must be closed after the client.
	Store *objects.Store
	// Caller is the user on whose behalf the client acts.
	Caller objects.Caller
	// Session is the secret name of the client's session. If the store outlives its process, a client of a session of the same
	// name has the keys and publications of the one before; see Continue. Empty is none.
	Session string
	// Keys has the keys of the store, and of other nodes if there are any. Default: only the
	// store's.
	Keys objects.Keys
	// Inode returns the store's inode for an open file of the mount; nil if there is no mount.
	Inode func(*os.File) (objects.Ino, error)
	// Refusals counts the refusals at the limits of a client; nil disables counting.
	Refusals *Refusals
}

// Client is a hetero.Client of the daemon's own process.
type Client struct {
	store  *objects.Store
	holder *objects.Holder
	inode  func(*os.File) (objects.Ino, error)
	keys   objects.Keys
	// life ends with Close, and every call with it.
	life context.Context //nolint:containedctx // it is the lifetime of the client
	end  context.CancelFunc
	// calls counts the calls in progress; it is incremented with mu held, and never after the
	// client was closed.
	calls      sync.WaitGroup
	refusals   *Refusals
	background background
	// gets has gets that have ended, whose memory is used again.
	gets sync.Pool
	// uses has calls of WithMemory that have ended.
	uses          sync.Pool
	subscriptions subscriptions
	reservations  reservations

	mu sync.RWMutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	last hetero.MemoryID
	// +checklocks:mu
	memories map[hetero.MemoryID]*objects.Region
	// +checklocks:mu
	targets map[hetero.MemoryID]*target
}

var _ hetero.Client = (*Client)(nil)

// New returns a client. Close ends it.
func New(o Options) *Client {
	if o.Keys == nil {
		o.Keys = objects.LocalKeys{Store: o.Store}
	}
	o.Refusals = cmp.Or(o.Refusals, &Refusals{})
	life, end := context.WithCancel(context.Background())
	return &Client{
		store: o.Store, holder: o.Store.NewSession(o.Caller, o.Session), inode: o.Inode, keys: o.Keys,
		life: life, end: end,
		refusals: o.Refusals, background: background{refusals: o.Refusals},
		subscriptions: subscriptions{byKey: map[string]*subscription{}},
		reservations:  reservations{byKey: map[string]*reservation{}},
		memories:      map[hetero.MemoryID]*objects.Region{},
		targets:       map[hetero.MemoryID]*target{},
	}
}

// Close ends the client, within 3 s unless the store hangs. Calls in progress end with
// ErrClosed. Closing twice is harmless.
func (c *Client) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	c.end()
	idle := make(chan struct{})
	go func() {
		c.calls.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(closeWait): // a slow device; the holder can be closed regardless
	}
	c.endReservations()
	if err := c.holder.Close(context.Background()); err != nil {
		return fmt.Errorf("close a client of heterogeneous objects: %w", translate(err))
	}
	return nil
}

// Continue gives the client the keys and publications that one of the same session has had in an earlier
// process of the daemon. All memory that they consist of has been registered again, by the same numbers.
//
// Errors: ErrClosed.
func (c *Client) Continue(ctx context.Context) error {
	_, begun, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer begun.leave()
	c.holder.Continue(ctx)
	return nil
}

// begin starts a call, whose leave must be called once, and returns its context.
//
// Errors: ErrClosed.
func (c *Client) begin(ctx context.Context) (context.Context, *call, error) {
	begun := &call{}
	if err := c.enter(ctx, begun); err != nil {
		return nil, nil, err
	}
	return begun, begun, nil
}

// enter is begin with the memory of the call.
func (c *Client) enter(ctx context.Context, begun *call) error {
	c.mu.RLock()
	closed := c.closed
	if !closed {
		c.calls.Add(1)
	}
	c.mu.RUnlock()
	if closed {
		return hetero.ErrClosed
	}
	begun.Context, begun.client = ctx, c
	return nil
}

// failure returns the error of a key of a call: ErrClosed for a call that the client's end has
// cut short.
func (c *Client) failure(err error) error {
	if err == nil {
		return nil
	}
	if c.life.Err() != nil {
		return fmt.Errorf("%w: %w", hetero.ErrClosed, err)
	}
	return translate(err)
}

// results combines keys with the errors of an operation on them.
func (c *Client) results(keys []string, errs []error) hetero.Results {
	out := make(hetero.Results, len(keys))
	for i, key := range keys {
		out[i] = hetero.Result{Key: key, Err: c.failure(errs[i])}
	}
	return out
}
