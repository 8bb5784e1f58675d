package admin

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// expiring is a client that sets keys, except "held", and gives all of them a time to live except "odd".
type expiring struct {
	hetero.Client

	fault    error
	set, off []string
	expired  time.Duration
}

func (c *expiring) DevMSet(_ context.Context, keys []string, _ []hetero.DeviceBlobList) (hetero.Results, error) {
	out := make(hetero.Results, len(keys))
	for i, key := range keys {
		if out[i].Key = key; key == "held" {
			out[i].Err = hetero.ErrExist
			continue
		}
		c.set = append(c.set, key)
	}
	return out, nil
}

func (c *expiring) Expire(_ context.Context, keys []string, ttl time.Duration) (hetero.Results, error) {
	c.expired = ttl
	out := make(hetero.Results, len(keys))
	for i, key := range keys {
		if out[i].Key = key; key == "odd" {
			out[i].Err = hetero.ErrNotAuthorized
		}
	}
	return out, c.fault
}

func (c *expiring) DevLocalDelete(_ context.Context, keys []string) (hetero.Results, error) {
	c.off = append(c.off, keys...)
	return make(hetero.Results, len(keys)), nil
}

func TestBindWithTimeToLive(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tc := range []struct {
		name         string
		keys         []string
		ttl          time.Duration
		fault        error
		refused      error
		errs         []error
		set, removed []string
	}{
		{name: "for ever", keys: []string{"a", "odd"}, errs: []error{nil, nil}, set: []string{"a", "odd"}},
		{name: "limited", keys: []string{"a", "b"}, ttl: time.Minute, errs: []error{nil, nil}, set: []string{"a", "b"}},
		{
			name: "one can't expire", keys: []string{"a", "held", "odd", "b"}, ttl: time.Minute,
			errs: []error{nil, hetero.ErrExist, hetero.ErrNotAuthorized, nil}, set: []string{"a", "odd", "b"}, removed: []string{"odd"},
		},
		{
			name: "none can", keys: []string{"held", "a", "b"}, ttl: time.Minute, fault: broken,
			errs: []error{hetero.ErrExist, broken, broken}, set: []string{"a", "b"}, removed: []string{"a", "b"},
		},
		{name: "nothing is set", keys: []string{"held"}, ttl: time.Minute, fault: broken, errs: []error{hetero.ErrExist}},
		{name: "half a second", keys: []string{"a"}, ttl: time.Second / 2, refused: hetero.ErrInvalid},
		{name: "negative", keys: []string{"a"}, ttl: -time.Second, refused: hetero.ErrInvalid},
	} {
		c := &expiring{fault: tc.fault}
		got, err := bind(t.Context(), c, &adminapi.Call{Keys: tc.keys, TTL: adminapi.Duration(tc.ttl)})
		var errs []error
		for _, r := range got {
			errs = append(errs, r.Err)
		}
		if !errors.Is(err, tc.refused) || !slices.Equal(errs, tc.errs) || !slices.Equal(c.set, tc.set) || !slices.Equal(c.off, tc.removed) {
			t.Errorf("%s: %v, of keys %v; set %v, removed %v", tc.name, err, errs, c.set, c.off)
		}
		if len(tc.set) > 0 && c.expired != tc.ttl {
			t.Errorf("%s: a time to live of %v", tc.name, c.expired)
		}
	}
}
