package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// DevPublish offers blobs under keys, each to one subscriber.
func (c *Client) DevPublish(ctx context.Context, keys []string, lists []hetero.DeviceBlobList) ([]*hetero.Future, error) {
	set, err := c.checked(keys, lists, false)
	if err != nil {
		return nil, err
	}
	call, begun, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer begun.leave()
	published, errs := c.holder.Publish(call, set)
	futures, results := make([]*hetero.Future, len(keys)), c.results(keys, errs)
	for i, r := range results {
		f, settle := hetero.NewFuture(r.Key)
		if futures[i] = f; r.Err != nil {
			settle(r.Err)
			continue
		}
		published[i].Notify(func(err error) { settle(translate(err)) })
	}
	return futures, results.Outcome()
}

// DevSubscribe receives published keys into blobs.
func (c *Client) DevSubscribe(
	ctx context.Context, keys []string, lists []hetero.DeviceBlobList, o hetero.SubscribeOptions,
) ([]*hetero.Future, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.EnsureDefaults(len(keys))
	set, err := c.checked(keys, lists, false)
	if err != nil {
		return nil, err
	}
	call, leave, err := c.detach(ctx, len(keys))
	if err != nil {
		return nil, err
	}
	futures, fresh := c.subscriptions.join(set)
	p := plan{published: true, timeout: o.Timeout, late: hetero.ErrTimeout, keys: make([]string, len(fresh))}
	for i, s := range fresh {
		p.keys[i] = s.want.Key
	}
	p.try = func(ctx context.Context, i int) error { return c.receive(ctx, fresh[i].want) }
	go func() {
		defer leave()
		c.carryOut(call, p, func(i int, err error) { c.subscriptions.end(fresh[i], err) })
	}()
	return futures, nil
}

// receive receives one key, unless an earlier daemon has. If the memory was lost, its publisher has ended.
func (c *Client) receive(ctx context.Context, want objects.Keyed) error {
	if done, err := c.keys.Received(ctx, c.holder, want.Key); done || err != nil {
		return err
	}
	err := c.keys.Receive(ctx, c.holder, want)
	if errors.Is(err, objects.ErrLost) {
		return fmt.Errorf("%w: %s", hetero.ErrOwnerGone, err.Error())
	}
	return err
}

// subscriptions holds the keys that a client is waiting for, or is receiving.
type subscriptions struct {
	mu sync.Mutex
	// +checklocks:mu
	byKey map[string]*subscription
}

// subscription is one subscribed key.
type subscription struct {
	want   objects.Keyed
	future *hetero.Future
	settle func(error)
}

// join returns a future for each key: that of a new subscription, or of an existing one with
// the same blobs.
func (s *subscriptions) join(set []objects.Keyed) (futures []*hetero.Future, fresh []*subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	futures = make([]*hetero.Future, len(set))
	for i, want := range set {
		old := s.byKey[want.Key]
		if old != nil && slices.Equal(old.want.Blobs, want.Blobs) {
			futures[i] = old.future
			continue
		}
		f, settle := hetero.NewFuture(want.Key)
		futures[i] = f
		if old != nil {
			settle(fmt.Errorf("%w: this client is already subscribed to it with other blobs", hetero.ErrInconsistent))
			continue
		}
		one := &subscription{want: want, future: f, settle: settle}
		s.byKey[want.Key] = one
		fresh = append(fresh, one)
	}
	return futures, fresh
}

func (s *subscriptions) end(one *subscription, err error) {
	s.mu.Lock()
	delete(s.byKey, one.want.Key)
	s.mu.Unlock()
	one.settle(err)
}
