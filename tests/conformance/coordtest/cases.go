package coordtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

func testCreate(t *testing.T, s suite) {
	first := s.create(t, "a/x", "1", nil)
	results, err := s.other.Create(t.Context(), []coord.Entry{
		{Name: "a/x", Value: []byte("2")}, {Name: "a/y"}, {Name: "a/y", Value: []byte("twice")},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{coord.ErrExist, nil, coord.ErrExist} {
		if !errors.Is(results[i].Err, want) {
			t.Errorf("entry %d: %v, want %v", i, results[i].Err, want)
		}
	}
	if f := results[0].Found; f.Name != "a/x" || string(f.Value) != "1" || f.Revision != first.Revision {
		t.Errorf("found %+v, want %+v", f, first)
	}
	s.has(t, "a/x=1", "a/y=")
	got, err := s.Get(t.Context(), "a/x")
	if err != nil || got.Name != first.Name || string(got.Value) != "1" || got.Revision != first.Revision {
		t.Errorf("get: %+v, %v", got, err)
	}
	if _, err = s.Get(t.Context(), "a/z"); !errors.Is(err, coord.ErrNotFound) {
		t.Errorf("get what is not there: %v", err)
	}
}

// testCreateMany creates more entries than fit into one step of any service.
func testCreateMany(t *testing.T, s suite) {
	s.create(t, "n/0077", "mine", nil)
	const many = 350
	entries := make([]coord.Entry, many)
	var want []string
	for i := range entries {
		name := fmt.Sprintf("n/%04d", i)
		entries[i] = coord.Entry{Name: name, Value: []byte(strings.Repeat("v", i*20))}
		if i == 77 {
			want = append(want, name+"=mine")
			continue
		}
		want = append(want, name+"="+string(entries[i].Value))
	}
	results, err := s.Create(t.Context(), entries, s.grant(t))
	if err != nil || len(results) != many {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, r := range results {
		if taken := errors.Is(r.Err, coord.ErrExist); taken != (i == 77) || !taken && r.Revision == 0 {
			t.Errorf("entry %d: %+v", i, r)
		}
		entries[i].Revision = r.Revision
	}
	s.has(t, want...)
	if results, err = s.Delete(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil {
			t.Errorf("delete entry %d: %v", i, r.Err)
		}
	}
	s.has(t)
}

func testReplace(t *testing.T, s suite) {
	old := s.create(t, "x", "1", nil)
	revision := s.replace(t, old, "2", nil)
	if revision <= old.Revision {
		t.Errorf("revision %d after %d", revision, old.Revision)
	}
	now := coord.Entry{Name: "x", Value: []byte("4"), Revision: revision}
	wrong := []coord.Entry{old, {Name: "x"}, {Name: "y"}, {Name: "y", Revision: revision}}
	results, err := s.Replace(t.Context(), append(wrong, now, now), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if changed := errors.Is(r.Err, coord.ErrChanged); changed != (i != len(wrong)) {
			t.Errorf("entry %d: %+v", i, r)
		}
	}
	s.has(t, "x=4")
	if got, err := s.Get(t.Context(), "x"); err != nil || got.Revision != results[len(wrong)].Revision {
		t.Errorf("get: %+v, %v, want %+v", got, err, results[len(wrong)])
	}
}

// testReplaceMany binds more entries to another lease than fit into one step.
func testReplaceMany(t *testing.T, s suite) {
	one, two := s.grant(t), s.grant(t)
	const many = 250
	entries := make([]coord.Entry, many)
	var want []string
	for i := range entries {
		entries[i] = coord.Entry{Name: fmt.Sprintf("n/%04d", i), Value: []byte("1")}
		want = append(want, entries[i].Name+"=2")
	}
	results, err := s.Create(t.Context(), entries, one)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		entries[i].Revision, entries[i].Value = r.Revision, []byte("2")
	}
	if results, err = s.Replace(t.Context(), entries, two); err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil || r.Revision <= entries[i].Revision {
			t.Errorf("entry %d: %+v", i, r)
		}
	}
	if err = one.Revoke(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.has(t, want...)
}

func testDelete(t *testing.T, s suite) {
	a, b := s.create(t, "a", "1", nil), s.create(t, "b", "1", nil)
	s.create(t, "c", "1", nil)
	s.replace(t, b, "two", nil)
	results, err := s.Delete(t.Context(), []coord.Entry{a, b, {Name: "c"}, {Name: "never"}, {Name: "never", Revision: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, coord.ErrChanged, nil, nil, nil} {
		if !errors.Is(results[i].Err, want) {
			t.Errorf("entry %d: %v, want %v", i, results[i].Err, want)
		}
	}
	s.has(t, "b=two")
}

func testList(t *testing.T, s suite) {
	for _, name := range []string{"p", "p/", "p/a", "p/a/1", "p/b", "p0", "q/a"} {
		s.create(t, name, "", nil)
	}
	for _, c := range []struct {
		prefix, after string
		limit         int
		want          []string
	}{
		{"p/", "", 10, []string{"p/=", "p/a=", "p/a/1=", "p/b="}},
		{"p/", "", 2, []string{"p/=", "p/a="}},
		{"p/", "p/a", 2, []string{"p/a/1=", "p/b="}},
		{"p/", "p/a0", 10, []string{"p/b="}},
		{"p/", "p/b", 10, nil},
		{"p/", "z", 10, nil},
		{"p/", "a", 1, []string{"p/="}},
		{"p/", "", 0, nil},
		{"none/", "", 10, nil},
		{"", "p0", 10, []string{"q/a="}},
	} {
		got, revision := s.list(t, c.prefix, c.after, c.limit)
		same(t, fmt.Sprintf("list %q behind %q", c.prefix, c.after), c.want, got)
		if revision == 0 {
			t.Errorf("list %q: revision 0", c.prefix)
		}
	}
}

func testLeaseBinds(t *testing.T, s suite) {
	one, two := s.grant(t), s.grant(t)
	s.create(t, "free", "", nil)
	s.create(t, "one", "", one)
	moved := s.create(t, "moved", "", one)
	freed := s.create(t, "freed", "", one)
	s.create(t, "two", "", two)
	s.replace(t, moved, "2", two)
	s.replace(t, freed, "2", nil)
	if err := one.Revoke(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.has(t, "free=", "freed=2", "moved=2", "two=")
	if err := two.Revoke(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.has(t, "free=", "freed=2")
}

func testLeaseEnds(t *testing.T, s suite) {
	l, entry := s.grant(t), s.create(t, "x", "", nil)
	select {
	case <-l.Lost():
		t.Fatal("lost at once")
	default:
	}
	for range 2 {
		if err := l.Revoke(t.Context()); err != nil {
			t.Errorf("revoke: %v", err)
		}
	}
	select {
	case <-l.Lost():
	case <-time.After(limit):
		t.Error("revoked and not lost")
	}
	for name, ended := range map[string]coord.Lease{"ended": l, "foreign": foreign{}} {
		results, err := s.Create(t.Context(), []coord.Entry{{Name: "y"}, {Name: "z"}}, ended)
		if err != nil || !errors.Is(results[0].Err, coord.ErrLease) || !errors.Is(results[1].Err, coord.ErrLease) {
			t.Errorf("%s lease: create: %+v, %v", name, results, err)
		}
		results, err = s.Replace(t.Context(), []coord.Entry{entry}, ended)
		if err != nil || !errors.Is(results[0].Err, coord.ErrLease) {
			t.Errorf("%s lease: replace: %+v, %v", name, results, err)
		}
	}
	s.has(t, "x=")
}

// foreign is a lease that belongs to no service.
type foreign struct{}

func (foreign) Lost() <-chan struct{}        { return nil }
func (foreign) Revoke(context.Context) error { return nil }

func testWatchOrder(t *testing.T, s suite) {
	_, revision := s.list(t, "", "", 1)
	w := suite{Service: s.other}.watch(t, "", revision)
	l := s.grant(t)
	a := s.create(t, "a", "1", l)
	s.create(t, "b", "1", l)
	s.replace(t, a, "2", l)
	s.remove(t, "b")
	next(t, w, "a=1", "b=1", "a=2", "-b")
	if err := l.Revoke(t.Context()); err != nil {
		t.Fatal(err)
	}
	next(t, w, "-a")
}

// testWatchBehind starts a watch after a past revision.
func testWatchBehind(t *testing.T, s suite) {
	s.create(t, "a", "1", nil)
	_, revision := s.list(t, "", "", 1)
	b := s.create(t, "b", "1", nil)
	s.remove(t, "a")
	next(t, s.watch(t, "", revision), "b=1", "-a")
	next(t, s.watch(t, "", b.Revision), "-a")
	if _, err := s.Watch(t.Context(), "", revision+1<<40); !errors.Is(err, coord.ErrCompacted) {
		t.Errorf("behind what has not been: %v", err)
	}
}

func testWatchPrefix(t *testing.T, s suite) {
	_, revision := s.list(t, "", "", 1)
	w := s.watch(t, "keys/a", revision)
	for _, name := range []string{"keys/", "keys/a", "keys/ab", "keys/b", "nodes/keys/a", "keys/a/b"} {
		s.create(t, name, "", nil)
	}
	next(t, w, "keys/a=", "keys/ab=", "keys/a/b=")
}

func testWatchCloses(t *testing.T, s suite) {
	_, revision := s.list(t, "", "", 1)
	w := s.watch(t, "", revision)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("next with a context that has ended: %v", err)
	}
	s.create(t, "a", "", nil)
	next(t, w, "a=")
	closing := make(chan error, 1)
	go func() {
		_, err := w.Next(t.Context())
		closing <- err
	}()
	w.Close()
	w.Close()
	select {
	case err := <-closing:
		if !errors.Is(err, coord.ErrClosed) {
			t.Errorf("closed meanwhile: %v", err)
		}
	case <-time.After(limit):
		t.Error("close does not end next")
	}
}

func testServiceCloses(t *testing.T, s suite) {
	l := s.grant(t)
	s.create(t, "x", "", l)
	_, revision := s.list(t, "", "", 1)
	w := s.watch(t, "", revision)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, watchErr := w.Next(t.Context())
	_, grantErr := s.Grant(t.Context(), ttl)
	_, createErr := s.Create(t.Context(), []coord.Entry{{Name: "y"}}, nil)
	_, getErr := s.Get(t.Context(), "x")
	_, _, listErr := s.List(t.Context(), "", "", 1)
	_, beginErr := s.Watch(t.Context(), "", revision)
	errs := []error{watchErr, grantErr, createErr, getErr, listErr, beginErr, s.Close()}
	if i := slices.IndexFunc(errs, func(err error) bool { return !errors.Is(err, coord.ErrClosed) }); i >= 0 {
		t.Errorf("call %d after close: %v", i, errs[i])
	}
	// Closing stops keeping the lease alive, and does not revoke it.
	s.has(t, "x=")
}
