package fault

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

type op string

const (
	opRead  op = "read"
	opWrite op = "write"
)

var errInjected = errors.New("fault: injected")

// failed runs the operations through an injector with the rules and returns
// the indexes of those that failed.
func failed(t *testing.T, ops []op, rules ...Rule) []int {
	t.Helper()
	inj := New[op](rules...)
	var out []int
	for i, o := range ops {
		switch err := inj.Before(t.Context(), o); {
		case errors.Is(err, errInjected):
			out = append(out, i)
		case err != nil:
			t.Fatalf("operation %d: %v", i, err)
		}
	}
	return out
}

func TestMatchers(t *testing.T) {
	ops := []op{opRead, opWrite, opRead, opRead, opWrite, opWrite}
	on := new(Toggle)
	on.Set(true)
	for _, tc := range []struct {
		name string
		rule Rule
		want []int
	}{
		{"none", Rule{when: []Matcher{new(Toggle).On}}, nil},
		{"always", Fail(errInjected), []int{0, 1, 2, 3, 4, 5}},
		{"index", Fail(errInjected, OnIndex(3)), []int{3}},
		{"from", Fail(errInjected, FromIndex(4)), []int{4, 5}},
		{"every", Fail(errInjected, Every(2)), []int{1, 3, 5}},
		{"op", Fail(errInjected, OnOp(opWrite)), []int{1, 4, 5}},
		{"index of op", Fail(errInjected, OnOp(opWrite), OnIndex(1)), []int{4}},
		{"op at index", Fail(errInjected, OnIndex(1), OnOp(opRead)), nil},
		{"toggle on", Fail(errInjected, on.On, OnIndex(0)), []int{0}},
		{"toggle off", Fail(errInjected, new(Toggle).On), nil},
		{"never by chance", Fail(errInjected, Randomly(0, 1)), nil},
		{"always by chance", Fail(errInjected, Randomly(1, 1)), []int{0, 1, 2, 3, 4, 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := failed(t, ops, tc.rule); !slices.Equal(got, tc.want) {
				t.Errorf("failed %v, want %v", got, tc.want)
			}
		})
	}
}

func TestRandomlyRepeats(t *testing.T) {
	ops := slices.Repeat([]op{opRead}, 1000)
	first := failed(t, ops, Fail(errInjected, Randomly(0.1, 42)))
	if again := failed(t, ops, Fail(errInjected, Randomly(0.1, 42))); !slices.Equal(first, again) {
		t.Error("one seed gave two different runs")
	}
	if other := failed(t, ops, Fail(errInjected, Randomly(0.1, 43))); slices.Equal(first, other) {
		t.Error("two seeds gave the same run")
	}
	if len(first) < 50 || len(first) > 200 {
		t.Errorf("%d of 1000 failed at p=0.1", len(first))
	}
}

func TestDelay(t *testing.T) {
	const d = 10 * time.Millisecond
	inj := New[op](Delay(d, OnOp(opWrite)))
	start := time.Now()
	if err := inj.Before(t.Context(), opWrite); err != nil || time.Since(start) < d {
		t.Errorf("returned %v after %v", err, time.Since(start))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	inj.Set(Delay(time.Hour))
	if err := inj.Before(ctx, opRead); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled wait gave %v", err)
	}
}

func TestCallActsInTheMiddle(t *testing.T) {
	called := false
	inj := New[op](Call(func() error { called = true; return errInjected }))
	if err := inj.Before(t.Context(), opRead); !errors.Is(err, errInjected) || !called {
		t.Errorf("err %v, called %v", err, called)
	}
}

func TestNilInjectsNothing(t *testing.T) {
	var inj *Injector[op]
	if err := inj.Before(t.Context(), opRead); err != nil {
		t.Error(err)
	}
}

func TestEachIndexStopsAfterTheLastOperation(t *testing.T) {
	const operations = 5
	runs := 0
	EachIndex(t, errInjected, 100, func(t *testing.T, inj *Injector[op]) {
		runs++
		for range operations {
			if inj.Before(t.Context(), opRead) != nil {
				return
			}
		}
	}, OnOp(opRead))
	if runs != operations+1 {
		t.Errorf("ran %d times, want %d", runs, operations+1)
	}
}

func TestConcurrentUseCountsOnce(t *testing.T) {
	kit.Check(t)
	const workers, each = 8, 1000
	var reached Counter
	inj := New[op](Fail(errInjected, reached.Count, Every(10)), Delay(0, OnOp(opWrite)))
	var failures Counter
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				if inj.Before(t.Context(), []op{opRead, opWrite}[i%2]) != nil {
					failures.Count("")
				}
			}
		})
	}
	inj.Seen()
	wg.Wait()
	if got := failures.Load(); got != workers*each/10 {
		t.Errorf("%d operations failed, want %d", got, workers*each/10)
	}
	seen := inj.Seen()
	if reached.Load() != workers*each || seen[opRead]+seen[opWrite] != workers*each {
		t.Errorf("counted %d, saw %v", reached.Load(), seen)
	}
}
