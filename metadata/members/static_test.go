package members_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
)

func static(t *testing.T) *members.StaticView {
	t.Helper()
	v, err := members.Static(members.StaticOptions{Self: record("a"), Peers: []members.Record{
		{Name: "c", Addresses: []string{"c:1"}}, {Name: "b", Addresses: []string{"b:1"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestStatic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := static(t)
		var told []string
		cancel := v.OnEvent(func(ev members.Event) {
			told = append(told, fmt.Sprint(ev.Kind, ev.Record.Name, ev.Record.Epoch))
		})
		sees(t, v, "b", "c")
		b := members.Record{Name: "b", Addresses: []string{"elsewhere:1"}, Epoch: 7, ID: "x"}
		v.Met(b)
		v.Met(b)
		b.Epoch = 8
		v.Met(b)
		v.Met(members.Record{Name: "stranger", Epoch: 1})
		v.Met(members.Record{Name: "b", Version: strings.Repeat("x", 1000)})
		synctest.Wait()
		cancel()
		want := []string{
			fmt.Sprint(members.Changed, "b", 7), fmt.Sprint(members.Left, "b", 7), fmt.Sprint(members.Joined, "b", 8),
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		if r, ok := v.ByRank(members.Name("b").Rank()); !ok || r.Epoch != 8 || r.Addresses[0] != "b:1" {
			t.Errorf("b is %+v", r)
		}
		if _, ok := v.ByRank(members.Name("a").Rank()); ok {
			t.Error("we are among the others")
		}
		if err := v.Update(func(r *members.Record) { r.Addresses = []string{"x:1"} }); err != nil || v.Self().Addresses[0] != "x:1" {
			t.Errorf("update: %v, %+v", err, v.Self())
		}
		if st := v.State(); st.Backend != "static" || st.Problem != "" {
			t.Errorf("state %+v", st)
		}
	})
}

func TestStaticRefused(t *testing.T) {
	for name, peers := range map[string][]members.Record{
		"ourselves":  {{Name: "a", Addresses: []string{"a:1"}}},
		"twice":      {{Name: "b", Addresses: []string{"b:1"}}, {Name: "b", Addresses: []string{"b:2"}}},
		"no address": {{Name: "b"}},
		"no name":    {{Addresses: []string{"b:1"}}},
	} {
		if _, err := members.Static(members.StaticOptions{Self: record("a"), Peers: peers}); err == nil {
			t.Errorf("%s is no fault", name)
		}
	}
}

// TestEpoch checks epochs with arbitrary clocks.
func TestEpoch(t *testing.T) {
	for _, last := range []members.Epoch{0, 1, 1 << 60} {
		self := record("a")
		self.Epoch = last
		v, err := members.Static(members.StaticOptions{Self: self})
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Self().Epoch; got <= last {
			t.Errorf("epoch %d after %d", got, last)
		}
	}
}

func TestCancelWaits(t *testing.T) {
	v := static(t)
	var calls atomic.Int32
	inside, enter := make(chan struct{}, 3), make(chan struct{})
	first := v.OnEvent(func(members.Event) {
		calls.Add(1)
		inside <- struct{}{}
		<-enter
	})
	v.Met(members.Record{Name: "b", Epoch: 1})
	v.Met(members.Record{Name: "b", Epoch: 2}) // two events more
	<-inside
	late := v.OnEvent(func(members.Event) { t.Error("told of what was before") })
	done := make(chan struct{})
	go func() {
		first()
		close(done)
	}()
	select {
	case <-done:
		t.Error("cancelled while the function runs")
	default:
	}
	close(enter)
	<-done
	n := calls.Load()
	late()
	v.Met(members.Record{Name: "c", Version: "v"})
	flush := make(chan struct{}, 1)
	defer v.OnEvent(func(members.Event) { flush <- struct{}{} })()
	v.Met(members.Record{Name: "c", Version: "w"})
	<-flush
	if calls.Load() != n {
		t.Error("called after it was cancelled")
	}
}

func TestOptionsValidate(t *testing.T) {
	o := members.Options{TTL: 1500 * time.Millisecond, Probe: -1, Self: members.Record{Name: "-"}}
	o.EnsureDefaults()
	err := o.Validate()
	for _, want := range []string{"no service", "invalid lease", "invalid probe interval", "node name"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %q in %v", want, err)
		}
	}
	if !errors.Is(err, members.ErrName) {
		t.Errorf("%v is no ErrName", err)
	}
}

func TestNames(t *testing.T) {
	for name, good := range map[members.Name]bool{
		"a": true, "node-1.rack_2": true, "0": true, members.Name(strings.Repeat("x", 63)): true,
		"": false, ".": false, "..": false, "-a": false, "a/b": false, "ä": false, "a b": false, "a\x00": false,
		members.Name(strings.Repeat("x", 64)): false,
	} {
		if err := name.Validate(); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
	// All nodes must agree on the rank.
	if got := members.Name("a").Rank(); got != 0xca978112 {
		t.Errorf("rank of a is %#x", got)
	}
}

// TestStaticForget: a forgotten node is not in the view until it is met again, and then has
// the address of the list.
func TestStaticForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := static(t)
		v.Met(members.Record{Name: "b", Epoch: 7})
		var told []string
		cancel := v.OnEvent(func(ev members.Event) { told = append(told, fmt.Sprint(ev.Kind, ev.Record.Name)) })
		if err := v.Forget(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		sees(t, v, "c")
		if _, ok := v.ByRank(members.Name("b").Rank()); ok {
			t.Error("its rank is known still")
		}
		for _, name := range []members.Name{"a", "b", "stranger"} {
			if err := v.Forget(t.Context(), name); !errors.Is(err, coord.ErrNotFound) {
				t.Errorf("forget %s: %v", name, err)
			}
		}
		v.Met(members.Record{Name: "b", Version: strings.Repeat("x", 1000)})
		sees(t, v, "c")
		v.Met(members.Record{Name: "b", Epoch: 8, Addresses: []string{"elsewhere:1"}})
		sees(t, v, "b", "c")
		if r, ok := v.Get("b"); !ok || r.Epoch != 8 || r.Addresses[0] != "b:1" {
			t.Errorf("b is %+v", r)
		}
		synctest.Wait()
		cancel()
		if diff := cmp.Diff([]string{fmt.Sprint(members.Left, "b"), fmt.Sprint(members.Joined, "b")}, told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}
