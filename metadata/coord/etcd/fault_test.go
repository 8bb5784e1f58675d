package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/coord/etcd"
	"github.com/hmcfs/hmcfs/tests/etcdkit"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// limit bounds the waits of the tests.
const limit = 60 * time.Second

// short sets a short timeout, since tests wait for it.
func short(o *etcd.Options) { o.Timeout = time.Second }

// put makes one value.
func put(t *testing.T, s coord.Service, name string, l coord.Lease) coord.Revision {
	t.Helper()
	results, err := s.Create(t.Context(), []coord.Entry{{Name: name}}, l)
	if err != nil || results[0].Err != nil {
		t.Fatalf("create %s: %+v, %v", name, results, err)
	}
	return results[0].Revision
}

func grant(t *testing.T, s coord.Service, ttl time.Duration) coord.Lease {
	t.Helper()
	l, err := s.Grant(t.Context(), ttl)
	if err != nil {
		t.Fatalf("grant: %v", err)
	}
	return l
}

// gone reports whether the value does not exist.
func gone(t *testing.T, s coord.Service, name string) bool {
	t.Helper()
	_, err := s.Get(t.Context(), name)
	return errors.Is(err, coord.ErrNotFound)
}

// reached waits until the service answers again.
func reached(t *testing.T, s coord.Service) {
	t.Helper()
	kit.Eventually(t, limit, func() bool {
		_, _, err := s.List(t.Context(), "", "", 1)
		return err == nil
	})
}

func TestAway(t *testing.T) {
	e := etcdkit.Start(t, etcdkit.Options{})
	s := open(t, e, short)
	l := grant(t, s, time.Minute)
	revision := put(t, s, "x", l)
	w, err := s.Watch(t.Context(), "z", revision)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	e.Stop()
	_, getErr := s.Get(t.Context(), "x")
	_, createErr := s.Create(t.Context(), []coord.Entry{{Name: "y"}}, nil)
	deleted, deleteErr := s.Delete(t.Context(), []coord.Entry{{Name: "x", Revision: revision}})
	if len(deleted) != 0 {
		t.Errorf("deleted while etcd is away: %+v", deleted)
	}
	_, grantErr := s.Grant(t.Context(), time.Minute)
	_, watchErr := s.Watch(t.Context(), "", revision)
	_, openErr := etcd.Open(t.Context(), options(t, e, short))
	for i, err := range []error{getErr, createErr, deleteErr, grantErr, watchErr, openErr} {
		if !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("call %d while etcd is away: %v", i, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = s.Get(ended, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if err = e.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	reached(t, s)
	select {
	case <-l.Lost():
		t.Error("the lease is lost")
	default:
	}
	// The watch continues as if nothing had happened.
	put(t, s, "z", l)
	events, err := w.Next(t.Context())
	if err != nil || events[0].Name != "z" {
		t.Errorf("the watch: %+v, %v", events, err)
	}
}

func TestWiped(t *testing.T) {
	e := etcdkit.Start(t, etcdkit.Options{})
	s := open(t, e, short)
	l := grant(t, s, 3*time.Second)
	put(t, s, "x", l)
	revision := put(t, s, "y", nil)
	w, err := s.Watch(t.Context(), "", revision)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err = e.Wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	reached(t, s)
	if _, err = w.Next(t.Context()); !errors.Is(err, coord.ErrCompacted) {
		t.Errorf("a watch of what was: %v", err)
	}
	if !gone(t, s, "x") || !gone(t, s, "y") {
		t.Error("wiped, and not gone")
	}
	results, err := s.Create(t.Context(), []coord.Entry{{Name: "x"}}, l)
	if err != nil || !errors.Is(results[0].Err, coord.ErrLease) {
		t.Errorf("under the old lease: %+v, %v", results, err)
	}
	kit.Eventually(t, limit, func() bool {
		select {
		case <-l.Lost():
			return true
		default:
			return false
		}
	})
	put(t, s, "x", grant(t, s, time.Minute))
	if err = l.Revoke(t.Context()); err != nil {
		t.Errorf("revoke the old lease: %v", err)
	}
}

// TestLease has leases end by the server's clock, which depends only on elapsed time.
func TestLease(t *testing.T) {
	e := etcdkit.Start(t, etcdkit.Options{})
	dies, lives := open(t, e, short), open(t, e, short)
	put(t, dies, "dies", grant(t, dies, time.Second))
	kept := grant(t, lives, time.Second)
	put(t, lives, "lives", kept)
	// A closed client renews nothing, like one that has died.
	if err := dies.Close(); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, limit, func() bool { return gone(t, lives, "dies") })
	if gone(t, lives, "lives") {
		t.Error("the lease that is kept has ended too")
	}
	// A server is paused for longer than a lease: client and server agree afterwards,
	// whatever each has concluded.
	if err := e.Pause(true); err != nil {
		t.Fatal(err)
	}
	select {
	case <-kept.Lost():
	case <-time.After(limit):
		t.Error("the lease can't be told, and is not lost")
	}
	if err := e.Pause(false); err != nil {
		t.Fatal(err)
	}
	reached(t, lives)
	kit.Eventually(t, limit, func() bool { return gone(t, lives, "lives") })
}

func TestProofs(t *testing.T) {
	const password = "correct horse"
	e := etcdkit.Start(t, etcdkit.Options{TLS: true, Password: password})
	as := func(user, password string) func(*etcd.Options) {
		return func(o *etcd.Options) { o.Username, o.Password, o.Timeout = user, password, 5*time.Second }
	}
	s := open(t, e, as(etcdkit.User, password))
	l := grant(t, s, 10*time.Second)
	revision := put(t, s, "x", l)
	w, err := s.Watch(t.Context(), "", revision)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, c := range map[string]struct {
		change func(*etcd.Options)
		want   error
	}{
		"wrong password": {as(etcdkit.User, "wrong"), coord.ErrDenied},
		"nobody":         {as("nobody", password), coord.ErrDenied},
		"no password":    {as("", ""), coord.ErrDenied},
		"not allowed": {func(o *etcd.Options) {
			as(etcdkit.User, password)(o)
			o.Prefix = "/elsewhere/"
		}, coord.ErrDenied},
		"no TLS": {func(o *etcd.Options) {
			as(etcdkit.User, password)(o)
			o.TLS, o.Timeout = nil, time.Second
		}, coord.ErrUnavailable},
		"no certificate": {func(o *etcd.Options) {
			as(etcdkit.User, password)(o)
			o.TLS, o.Timeout = o.TLS.Clone(), time.Second
			o.TLS.Certificates = nil
		}, coord.ErrUnavailable},
		"unknown authority": {func(o *etcd.Options) {
			as(etcdkit.User, password)(o)
			o.TLS, o.Timeout = o.TLS.Clone(), time.Second
			o.TLS.RootCAs = nil
		}, coord.ErrUnavailable},
	} {
		if _, err = etcd.Open(t.Context(), options(t, e, c.change)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// The tokens that replace passwords are lost with the server.
	e.Stop()
	if err = e.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	reached(t, s)
	put(t, s, "y", l)
	events, err := w.Next(t.Context())
	if err != nil || events[0].Name != "y" {
		t.Errorf("the watch: %+v, %v", events, err)
	}
}

func TestOptions(t *testing.T) {
	good := etcd.Options{Endpoints: []string{"a:1"}, Prefix: "/x/"}
	for name, change := range map[string]func(*etcd.Options){
		"no endpoint":  func(o *etcd.Options) { o.Endpoints = nil },
		"a URL":        func(o *etcd.Options) { o.Endpoints = []string{"http://a:1"} },
		"no prefix":    func(o *etcd.Options) { o.Prefix = "" },
		"half a name":  func(o *etcd.Options) { o.Prefix = "/x" },
		"no password":  func(o *etcd.Options) { o.Username = "u" },
		"negative":     func(o *etcd.Options) { o.Timeout = -1 },
		"no user name": func(o *etcd.Options) { o.Password = "p" },
	} {
		o := good
		change(&o)
		o.EnsureDefaults()
		if o.Validate() == nil {
			t.Errorf("%s is no fault", name)
		}
		if _, err := etcd.Open(t.Context(), o); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	good.EnsureDefaults()
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}
