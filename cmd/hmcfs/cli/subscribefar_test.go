package cli

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

func TestShares(t *testing.T) {
	keys := make([]string, 3*maxWatches+1)
	for i := range keys {
		keys[i] = string(rune('a' + i))
	}
	for _, n := range []int{0, 1, maxWatches, len(keys)} {
		var all []string
		dealt := shares(keys[:n])
		for _, share := range dealt {
			all = append(all, share...)
		}
		slices.Sort(all)
		if !slices.Equal(all, keys[:n]) || len(dealt) > maxWatches {
			t.Errorf("%d keys in %d shares: %q", n, len(dealt), all)
		}
	}
}

// farClient has keys published from the second time on that it is asked.
type farClient struct {
	hetero.Client

	asked atomic.Int32
}

func (c *farClient) Wait(_ context.Context, keys []string, _ bool, _ time.Duration) (hetero.Results, error) {
	if c.asked.Add(1) == 1 {
		return nil, errors.New("not now")
	}
	return hetero.Results{{Key: keys[0]}, {Key: keys[1], Err: hetero.ErrTimeout}}, nil
}

// quietStream is a stream on which nothing comes.
type quietStream struct{ closed chan struct{} }

func (s quietStream) Next(ctx context.Context) (keyEvent, error) {
	<-ctx.Done()
	return keyEvent{}, ctx.Err()
}

func (s quietStream) Close() error { close(s.closed); return nil }

// What is published elsewhere comes among the events, again and again while it
// is there, and nothing goes on behind Close.
func TestFarStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := quietStream{make(chan struct{})}
		f := &far{c: &farClient{}}
		s := f.stream(t.Context(), twice("x", "y"), true, local)
		for range 3 {
			if e, err := s.Next(t.Context()); err != nil || e.Kind != eventPublished {
				t.Errorf("%+v, %v", e, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-local.closed
		synctest.Wait()
	})
}

// twice are as many keys as make shares of two.
func twice(a, b string) []string {
	var out []string
	for _, suffix := range []string{a, b} {
		for i := range maxWatches {
			out = append(out, suffix+string(rune('a'+i)))
		}
	}
	return out
}
