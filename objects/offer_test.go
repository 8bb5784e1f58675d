package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
)

// TestOfferStates takes an offer through every step from every state.
func TestOfferStates(t *testing.T) {
	t.Parallel()
	ended, stop := context.WithCancel(t.Context())
	stop()
	me, other := &claimant{}, &claimant{}
	is := func(err error) string {
		switch {
		case err == nil:
			return "ok"
		case errors.Is(err, metadata.ErrNotExist):
			return "not there"
		case errors.Is(err, ErrInvalid):
			return "no"
		case errors.Is(err, ErrLost):
			return "lost"
		case errors.Is(err, context.Canceled):
			return "waits"
		}
		return err.Error()
	}
	claim := func(f *offer, by *claimant) string {
		mine, err := f.claim(ended, by, waits)
		if mine {
			return "mine"
		}
		return is(err)
	}
	must := func(t *testing.T, f *offer, by *claimant) {
		t.Helper()
		if _, err := f.claim(t.Context(), by, waits); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		set  func(t *testing.T, f *offer)
		want string
	}{
		{"offered", func(*testing.T, *offer) {}, "look ok ok, untaken ok, holds no no, claim ok, other waits, back true, end withdrawn"},
		{"claimed by me", func(t *testing.T, f *offer) { must(t, f, me) }, "look ok ok, untaken ok, holds ok no, claim waits, other waits, back true, end withdrawn"},
		{"claimed by another", func(t *testing.T, f *offer) { must(t, f, other) }, "look ok ok, untaken ok, holds no ok, claim waits, other waits, back false, end withdrawn"},
		{"given back", func(t *testing.T, f *offer) {
			must(t, f, other)
			f.giveBack(other)
		}, "look ok ok, untaken ok, holds no no, claim ok, other waits, back true, end withdrawn"},
		{"taken by me", func(t *testing.T, f *offer) {
			must(t, f, me)
			if err := f.take(me); err != nil {
				t.Fatal(err)
			}
		}, "look ok not there, untaken not there, holds ok not there, claim mine, other not there, back false, end consumed"},
		{"taken by another", func(t *testing.T, f *offer) {
			must(t, f, other)
			if err := f.take(other); err != nil {
				t.Fatal(err)
			}
		}, "look not there ok, untaken not there, holds not there ok, claim not there, other mine, back false, end consumed"},
		{"withdrawn", func(_ *testing.T, f *offer) { f.end(EventWithdrawn, nil) }, "look not there not there, untaken not there, holds not there not there, claim not there, other not there, back false, end withdrawn"},
		{"withdrawn while claimed", func(t *testing.T, f *offer) {
			must(t, f, me)
			f.end(EventWithdrawn, ErrLost)
		}, "look lost lost, untaken lost, holds lost lost, claim lost, other lost, back false, end withdrawn"},
		{"consumed", func(t *testing.T, f *offer) {
			must(t, f, me)
			f.end(EventConsumed, ErrLost)
		}, "look ok not there, untaken not there, holds not there not there, claim mine, other not there, back false, end consumed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newOffer("t", false, nil)
			c.set(t, f)
			got := fmt.Sprintf("look %s %s, untaken %s, ", is(f.look(me)), is(f.look(other)), is(f.untaken()))
			got += fmt.Sprintf("holds %s %s, ", is(f.holds(me)), is(f.holds(other)))
			got += fmt.Sprintf("claim %s, other %s, ", claim(f, me), claim(f, other))
			got += fmt.Sprintf("back %v, ", f.giveBack(me))
			kind := EventWithdrawn
			f.mu.Lock()
			is := f.state
			f.mu.Unlock()
			if is == gone && c.name == "consumed" {
				kind = EventConsumed
			}
			got += fmt.Sprintf("end %s", f.end(kind, nil))
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestOfferOfRecord: an offer that the records mark as received can't be claimed.
func TestOfferOfRecord(t *testing.T) {
	t.Parallel()
	f := newOffer("t", true, nil)
	if err := f.look(&claimant{}); !errors.Is(err, metadata.ErrNotExist) {
		t.Fatalf("reading what was received: %v", err)
	}
	if kind := f.end(EventWithdrawn, nil); kind != EventConsumed {
		t.Fatalf("it was received, and ends as %s", kind)
	}
}

// TestOfferClaims has many goroutines claim an offer, give it back, and finally take
// it.
func TestOfferClaims(t *testing.T) {
	t.Parallel()
	const rounds = 20
	f := newOffer("t", false, nil)
	var inside, won atomic.Int64
	// hold claims it, and returns false when the offer has ended.
	hold := func(by *claimant, last bool) bool {
		_, err := f.claim(t.Context(), by, waits)
		if err != nil {
			if !errors.Is(err, metadata.ErrNotExist) {
				t.Error(err)
			}
			return false
		}
		if inside.Add(1) != 1 {
			t.Error("two have claimed it")
		}
		inside.Add(-1)
		if !last {
			if !f.giveBack(by) {
				t.Error("what I have claimed is not mine to give back")
			}
			return true
		}
		won.Add(1)
		if err := f.take(by); err != nil {
			t.Error(err)
		}
		return false
	}
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			by := &claimant{}
			for round := 0; round < rounds && hold(by, i%8 == 0 && round == rounds-1); round++ {
				continue
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d have taken it", won.Load())
	}
}

// noticed is a context that reports when a goroutine waits for its end.
type noticed struct {
	context.Context //nolint:containedctx // the type is a context itself
	asked           chan struct{}
}

func (n noticed) Done() <-chan struct{} {
	n.asked <- struct{}{}
	return n.Context.Done()
}

// TestOfferWaits: a goroutine that waits for a claim is woken by every outcome.
func TestOfferWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(f *offer, by *claimant)
		want error
	}{
		"given back": {func(f *offer, by *claimant) { f.giveBack(by) }, nil},
		"taken": {func(f *offer, by *claimant) {
			if err := f.take(by); err != nil {
				t.Error(err)
			}
		}, metadata.ErrNotExist},
		"consumed":  {func(f *offer, _ *claimant) { f.end(EventConsumed, nil) }, metadata.ErrNotExist},
		"withdrawn": {func(f *offer, _ *claimant) { f.end(EventWithdrawn, ErrLost) }, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, me := newOffer("t", false, nil), &claimant{}
			if _, err := f.claim(t.Context(), me, waits); err != nil {
				t.Fatal(err)
			}
			ctx := noticed{t.Context(), make(chan struct{})}
			got := make(chan error, 1)
			go func() {
				_, err := f.claim(ctx, &claimant{}, waits)
				got <- err
			}()
			<-ctx.asked
			c.end(f, me)
			if err := <-got; !errors.Is(err, c.want) {
				t.Errorf("told %v, want %v", err, c.want)
			}
		})
	}
}
