package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// claimLeast is the minimum time for an attempt to reserve a publication that waits for another client: another
// node may have to be asked.
const claimLeast = time.Second

// reservations holds the publications that a client has reserved, by key. A nil entry is a
// reservation in progress.
type reservations struct {
	mu sync.Mutex
	// +checklocks:mu
	byKey map[string]*reservation
	// +checklocks:mu
	closed bool
}

// reservation is a publication that only this client may receive.
type reservation struct {
	of objects.Reservation
	// target is nil if there is none.
	target *target
	// idle ends the reservation; each use restarts it.
	idle *time.Timer

	// turn admits one use at a time; it is held while bytes move.
	turn sync.Mutex
	// +checklocks:turn
	ended bool
}

// begin marks a key as being reserved.
//
// Errors: ErrInconsistent, ErrClosed.
func (all *reservations) begin(key string) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return hetero.ErrClosed
	}
	if _, has := all.byKey[key]; has {
		return fmt.Errorf("%w: this client has already reserved it", hetero.ErrInconsistent)
	}
	all.byKey[key] = nil
	return nil
}

// put stores a reservation.
//
// Errors: ErrClosed.
func (all *reservations) put(key string, r *reservation) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return hetero.ErrClosed
	}
	all.byKey[key] = r
	return nil
}

// get returns a reservation.
//
// Errors: ErrNotFound.
func (all *reservations) get(key string) (*reservation, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if r := all.byKey[key]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w: this client has not reserved %q", hetero.ErrNotFound, key)
}

// remove removes a reservation or, with nil, the mark of one that was not made.
func (all *reservations) remove(key string, r *reservation) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byKey[key] == r {
		delete(all.byKey, key)
	}
}

// close removes and returns all reservations, and admits no more.
func (all *reservations) close() map[string]*reservation {
	all.mu.Lock()
	defer all.mu.Unlock()
	left := all.byKey
	all.byKey, all.closed = map[string]*reservation{}, true
	return left
}

// DevClaim reserves a publication.
func (c *Client) DevClaim(ctx context.Context, key string, o hetero.ClaimOptions) (hetero.MetaInfo, error) {
	t, err := c.targetOf(o.Target)
	if err = errors.Join(hetero.CheckKey(key), hetero.CheckTimeout(o.Timeout), err); err != nil {
		return hetero.MetaInfo{}, err
	}
	call, begun, err := c.begin(ctx)
	if err != nil {
		return hetero.MetaInfo{}, err
	}
	defer begun.leave()
	if err = c.reservations.begin(key); err != nil {
		return hetero.MetaInfo{}, err
	}
	info, err := c.claim(call, key, t, o.Timeout)
	if err != nil {
		c.reservations.remove(key, nil)
	}
	return info, err
}

// claim makes the reservation of a key that begin has marked.
func (c *Client) claim(ctx context.Context, key string, t *target, timeout time.Duration) (hetero.MetaInfo, error) {
	soon := ctx
	if timeout > 0 {
		var enough context.CancelFunc
		soon, enough = context.WithTimeout(ctx, max(timeout, claimLeast))
		defer enough()
	} // an attempt that waits for no other client ends once the node has answered, or is given up
	r := &reservation{target: t}
	results := c.collect(soon, plan{
		keys: []string{key}, published: true, timeout: timeout, late: hetero.ErrTimeout,
		try: func(ctx context.Context, _ int) (err error) {
			r.of, err = c.keys.Claim(ctx, c.holder, key, timeout > 0)
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("another receiver has claimed %q: %w", key, objects.ErrBusy)
			}
			return err
		},
	})
	if err := results[0].Err; err != nil {
		return hetero.MetaInfo{}, err
	}
	blobs, err := r.of.Blobs(ctx)
	if err == nil {
		r.idle = time.AfterFunc(hetero.ClaimIdle, func() { c.abandon(key, r) }) //nolint:contextcheck // the claim outlives the call
		err = c.reservations.put(key, r)
	}
	if err != nil {
		r.of.GiveBack(ctx)
		return hetero.MetaInfo{}, c.failure(err)
	}
	info := hetero.MetaInfo{Key: key, Blobs: make([]devices.Size, len(blobs))}
	for i, n := range blobs {
		info.Blobs[i] = devices.Size(n)
		info.Size += devices.Size(n)
	}
	return info, nil
}

// DevFetch copies bytes of a reserved publication into a blob.
func (c *Client) DevFetch(ctx context.Context, key string, to hetero.DeviceBlobList) error {
	set, err := c.checked([]string{key}, []hetero.DeviceBlobList{to}, true)
	if err == nil && len(set[0].Blobs) != 1 {
		err = fmt.Errorf("%w: %d blobs, but the call accepts only one", hetero.ErrInvalid, len(set[0].Blobs))
	}
	if err != nil {
		return err
	}
	call, begun, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer begun.leave()
	r, err := c.reservations.get(key)
	if err != nil {
		return err
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	if r.ended {
		return errSettled(key)
	}
	r.idle.Reset(hetero.ClaimIdle)
	err = r.of.Fetch(call, set[0].Blobs[0], uint64(to.SourceOffset))
	if errors.Is(err, objects.ErrLost) {
		return fmt.Errorf("%w: %s", hetero.ErrOwnerGone, err.Error())
	}
	return c.failure(err)
}

// DevSettle ends a reservation, even after ctx has ended.
func (c *Client) DevSettle(ctx context.Context, key string, received bool) error {
	if err := hetero.CheckKey(key); err != nil {
		return err
	}
	call, begun, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer begun.leave()
	if received {
		done, failure := c.keys.Received(call, c.holder, key)
		if done || failure != nil {
			return c.failure(failure)
		}
	}
	r, err := c.reservations.get(key)
	if err != nil {
		return err
	}
	defer c.reservations.remove(key, r)
	r.turn.Lock()
	defer r.turn.Unlock()
	if r.ended {
		return errSettled(key)
	}
	return c.failure(c.settle(context.WithoutCancel(ctx), r, received))
}

func errSettled(key string) error {
	return fmt.Errorf("%w: the reservation of %q has ended", hetero.ErrNotFound, key)
}

// settle ends a reservation.
//
// +checklocks:r.turn
func (c *Client) settle(ctx context.Context, r *reservation, received bool) error {
	r.ended = true
	r.idle.Stop()
	if !received {
		r.of.GiveBack(ctx)
		return nil
	}
	if r.target != nil {
		if err := r.target.keep(ctx); err != nil {
			r.of.GiveBack(ctx)
			return err
		}
	}
	return r.of.Take(ctx)
}

// abandon ends a reservation that is no longer used: as received if the target indicates that.
func (c *Client) abandon(key string, r *reservation) {
	c.reservations.remove(key, r)
	r.turn.Lock()
	defer r.turn.Unlock()
	if r.ended {
		return
	}
	ctx := context.Background()
	// The publisher is notified of either; on a failure the state is unchanged.
	_ = c.settle(ctx, r, r.target != nil && r.target.arrived(ctx))
}

// endReservations ends all reservations and closes the targets, at the end of the client.
func (c *Client) endReservations() {
	for key, r := range c.reservations.close() {
		if r != nil {
			c.abandon(key, r)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.targets {
		t.close()
	}
	clear(c.targets)
}
