package coordtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// ttl is the time to live of the suite's leases. None of them is meant to expire.
const ttl = time.Minute

// limit bounds operations that should complete immediately.
const limit = 30 * time.Second

// Open creates a service for a test, and returns a function that creates clients of it. The
// suite closes the clients.
type Open func(t *testing.T) (client func() coord.Service)

// suite holds one test's service with two clients.
type suite struct {
	coord.Service
	other coord.Service
}

// Run runs the suite.
func Run(t *testing.T, open Open) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, suite){
		"Create":        testCreate,
		"CreateMany":    testCreateMany,
		"Replace":       testReplace,
		"ReplaceMany":   testReplaceMany,
		"Delete":        testDelete,
		"List":          testList,
		"LeaseBinds":    testLeaseBinds,
		"LeaseEnds":     testLeaseEnds,
		"WatchOrder":    testWatchOrder,
		"WatchBehind":   testWatchBehind,
		"WatchPrefix":   testWatchPrefix,
		"WatchCloses":   testWatchCloses,
		"ServiceCloses": testServiceCloses,
	} {
		t.Run(name, func(t *testing.T) {
			client := open(t)
			s := suite{Service: client(), other: client()}
			t.Cleanup(func() {
				for _, c := range []coord.Service{s.Service, s.other} {
					if err := c.Close(); err != nil && !errors.Is(err, coord.ErrClosed) {
						t.Errorf("close: %v", err)
					}
				}
			})
			test(t, s)
		})
	}
}

// create creates one entry that must not exist yet.
func (s suite) create(t *testing.T, name, value string, l coord.Lease) coord.Entry {
	t.Helper()
	e := coord.Entry{Name: name, Value: []byte(value)}
	results, err := s.Create(t.Context(), []coord.Entry{e}, l)
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	if results[0].Err != nil || results[0].Revision == 0 {
		t.Fatalf("create %s: %+v", name, results[0])
	}
	e.Revision = results[0].Revision
	return e
}

// replace replaces one entry, which must be equal to old.
func (s suite) replace(t *testing.T, old coord.Entry, value string, l coord.Lease) coord.Revision {
	t.Helper()
	old.Value = []byte(value)
	results, err := s.Replace(t.Context(), []coord.Entry{old}, l)
	if err != nil || results[0].Err != nil {
		t.Fatalf("replace %s: %+v, %v", old.Name, results, err)
	}
	return results[0].Revision
}

// remove removes one entry unconditionally.
func (s suite) remove(t *testing.T, name string) {
	t.Helper()
	results, err := s.Delete(t.Context(), []coord.Entry{{Name: name}})
	if err != nil || results[0].Err != nil {
		t.Fatalf("delete %s: %+v, %v", name, results, err)
	}
}

func (s suite) grant(t *testing.T) coord.Lease {
	t.Helper()
	l, err := s.Grant(t.Context(), ttl)
	if err != nil {
		t.Fatalf("grant: %v", err)
	}
	return l
}

// list returns all entries whose names begin with a prefix, as name=value.
func (s suite) list(t *testing.T, prefix, after string, limit int) ([]string, coord.Revision) {
	t.Helper()
	entries, revision, err := s.List(t.Context(), prefix, after, limit)
	if err != nil {
		t.Fatalf("list %q behind %q: %v", prefix, after, err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name+"="+string(e.Value))
	}
	return out, revision
}

// has fails the test unless the second client sees exactly these entries.
func (s suite) has(t *testing.T, want ...string) {
	t.Helper()
	got, _ := suite{Service: s.other}.list(t, "", "", 1<<20)
	same(t, "there is", want, got)
}

func same(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (s suite) watch(t *testing.T, prefix string, after coord.Revision) coord.Watch {
	t.Helper()
	w, err := s.Watch(t.Context(), prefix, after)
	if err != nil {
		t.Fatalf("watch %q behind %d: %v", prefix, after, err)
	}
	t.Cleanup(w.Close)
	return w
}

// next reads changes, as name=value, and as -name for a removal.
func next(t *testing.T, w coord.Watch, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	got := []string{}
	var last coord.Revision
	for len(got) < len(want) {
		events, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("watch: %v, after %v", err, got)
		}
		for _, ev := range events {
			if ev.Revision < last {
				t.Errorf("revision %d behind %d", ev.Revision, last)
			}
			last = ev.Revision
			if ev.Deleted {
				got = append(got, "-"+ev.Name)
			} else {
				got = append(got, ev.Name+"="+string(ev.Value))
			}
		}
	}
	same(t, "changes", want, got)
}
