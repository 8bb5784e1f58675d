package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// sessionPatience bounds the wait for an expected event.
const sessionPatience = 60 * time.Second

// keyedRig is a server of keys with fake clients.
type keyedRig struct {
	*fakeKeyed

	server *admin.Server
	socket string
	// uid is the user of the next connections.
	uid atomic.Int64
	// refusals are counted with files only.
	refusals *admin.Refusals
}

func newKeyedRig(t testing.TB, uid int) *keyedRig {
	t.Helper()
	return newKeyedRigWith(t, uid, func(*admin.Options) {})
}

// newKeyedRigWith is newKeyedRig with changed options.
func newKeyedRigWith(t testing.TB, uid int, change func(*admin.Options)) *keyedRig {
	t.Helper()
	kit.Check(t)
	dir, err := os.MkdirTemp("", "hmcfs-admin-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &keyedRig{fakeKeyed: &fakeKeyed{queue: make(chan objects.Event, 100)}, socket: filepath.Join(dir, "s")}
	r.uid.Store(int64(uid))
	options := admin.Options{
		Socket: r.socket, Backend: &backend{}, Keyed: r.fakeKeyed, Owner: owner, Open: true,
		Peer: func(*net.UnixConn) (admin.Peer, error) {
			n := int(r.uid.Load())
			return admin.Peer{UID: n, GID: n, PID: os.Getpid(), Groups: []uint32{5}}, nil
		},
	}
	change(&options)
	r.server, err = admin.Listen(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := r.server.Close(context.Background()); cerr != nil {
			t.Errorf("Close: %v", cerr)
		}
	})
	return r
}

// open opens a session that ends with the test.
func (r *keyedRig) open(t testing.TB) *client.Session {
	t.Helper()
	s, err := client.OpenSession(t.Context(), r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestSessionCarriesCalls makes every call, and compares what the client behind the session
// receives and returns.
func TestSessionCarriesCalls(t *testing.T) {
	r := newKeyedRig(t, 0)
	s := r.open(t)
	keys, lists := []string{keyMissing, "a", keySkipped}, listOf(3)
	lists[1].SourceOffset = 1 << 40
	type call = adminapi.Call
	get := hetero.GetOptions{Timeout: time.Minute + time.Nanosecond, Replica: true}
	set := hetero.SetOptions{Existing: hetero.ExistingReplace, TTL: time.Hour}
	gotten := call{Keys: keys, Lists: lists, Timeout: adminapi.Duration(get.Timeout), Replica: true}
	gathered := call{Keys: keys, Lists: lists, Existing: "replace", TTL: adminapi.Duration(time.Hour)}
	ctx := t.Context()
	wait := func(b *hetero.Batch, err error) (hetero.Results, error) {
		if err != nil {
			return nil, err
		}
		return b.Wait(ctx)
	}
	for _, c := range []struct {
		verb string
		want call
		do   func() (hetero.Results, error)
	}{
		{"mset", call{Keys: keys, Lists: lists}, func() (hetero.Results, error) { return s.DevMSet(ctx, keys, lists) }},
		{"mget", gotten, func() (hetero.Results, error) { return s.DevMGet(ctx, keys, lists, get) }},
		{"delete", call{Keys: keys}, func() (hetero.Results, error) { return s.DevDelete(ctx, keys) }},
		{"delete", call{Keys: keys}, func() (hetero.Results, error) { return s.Delete(ctx, keys) }},
		{"local-delete", call{Keys: keys}, func() (hetero.Results, error) { return s.DevLocalDelete(ctx, keys) }},
		{"delete async", call{Keys: keys}, func() (hetero.Results, error) { return wait(s.AsyncDevDelete(ctx, keys)) }},
		{"d2h", gathered, func() (hetero.Results, error) { return s.MSetD2H(ctx, keys, lists, set) }},
		{"h2d", gotten, func() (hetero.Results, error) { return s.MGetH2D(ctx, keys, lists, get) }},
		{"d2h async", gathered, func() (hetero.Results, error) { return wait(s.AsyncMSetD2H(ctx, keys, lists, set)) }},
		{"h2d async", gotten, func() (hetero.Results, error) { return wait(s.AsyncMGetH2D(ctx, keys, lists, get)) }},
		{"expire", call{Keys: keys, TTL: adminapi.Duration(-time.Second)}, func() (hetero.Results, error) {
			return s.Expire(ctx, keys, -time.Second)
		}},
		{"wait", call{Keys: keys, Published: true, Timeout: adminapi.Duration(time.Microsecond)}, func() (hetero.Results, error) {
			return s.Wait(ctx, keys, true, time.Microsecond)
		}},
	} {
		results, err := c.do()
		if err != nil || len(results) != 3 {
			t.Errorf("%s: %d results, %v", c.verb, len(results), err)
			continue
		}
		for i, one := range results {
			if one.Key != keys[i] || errors.Is(one.Err, hetero.ErrNotFound) != (i == 0) || one.Skipped != (i == 2 && c.verb != "wait") {
				t.Errorf("%s: key %d is told as %+v", c.verb, i, one)
			}
		}
		if verb, asked := r.last().last(); verb != c.verb || !reflect.DeepEqual(asked, c.want) {
			t.Errorf("%s: asked %s %+v, want %+v", c.verb, verb, asked, c.want)
		}
	}
}

// TestSessionOverHTTP makes the calls with JSON, and compares what the client behind the session
// receives with the same calls in frames.
func TestSessionOverHTTP(t *testing.T) {
	r := newKeyedRig(t, 0)
	h := holdByHand(t, r.socket)
	byHTTP := r.last()
	f := openFrames(t, r.socket)
	byFrames := r.last()
	keys := []string{"a", keySkipped}
	lists := listOf(2)
	lists[0].SourceOffset = 1 << 40
	for i, verb := range frames.Verbs() {
		if verb == adminapi.VerbContinue {
			continue // these clients do not continue a session
		}
		q := adminapi.Call{
			Keys: keys, Lists: lists, Timeout: adminapi.Duration(time.Minute), TTL: adminapi.Duration(time.Hour),
			Existing: hetero.ExistingFail, Replica: true, Published: true, Memory: 5, Received: true,
		}
		if verb == adminapi.VerbClaim || verb == adminapi.VerbSettle || verb == adminapi.VerbFetch {
			q.Keys, q.Lists = keys[:1], lists[:1]
		}
		if verb == adminapi.VerbMSet {
			q.TTL = 0 // with one, the keys expire in a second call (TestBindWithTimeToLive)
		}
		body, err := json.Marshal(q)
		fatal(t, err)
		fatal(t, h.write(adminapi.PathCall+string(verb), h.id, string(body)).SetDeadline(time.Now().Add(sessionPatience)))
		f.write(callOf(t, verb, uint64(i+1), q))
		kit.Eventually(t, sessionPatience, func() bool {
			a, one := byHTTP.last()
			b, other := byFrames.last()
			return a == b && strings.HasPrefix(a, string(verb)) && reflect.DeepEqual(one, other)
		})
	}
}

// TestSessionTells checks the calls whose answers have a form of their own.
func TestSessionTells(t *testing.T) {
	r := newKeyedRig(t, 0)
	s := r.open(t)
	keys := []string{"a", keyMissing}
	there, err := s.Exist(t.Context(), keys)
	if err != nil || !slices.Equal(there, []bool{true, false}) {
		t.Errorf("exist: %v, %v", there, err)
	}
	infos, err := s.GetMetaInfo(t.Context(), keys, true)
	fatal(t, err)
	got := infos[0]
	if got.Err != nil || got.Key != "a" || got.Device != "sim1" || got.Size != 7 || !slices.Equal(got.Blobs, []devices.Size{3, 4}) ||
		!errors.Is(infos[1].Err, hetero.ErrNotFound) || infos[1].Key != keyMissing {
		t.Errorf("info: %+v", infos)
	}
	if _, asked := r.last().last(); !asked.Published {
		t.Error("it was asked of what is set")
	}
	if _, err = s.GetMetaInfo(t.Context(), []string{keyMissing}, false); !errors.Is(err, hetero.ErrNotFound) {
		t.Errorf("info of nothing: %v", err)
	}
	if err = s.Unregister(t.Context(), 9); err != nil {
		t.Error(err)
	}
	if verb, asked := r.last().last(); verb != "unregister" || asked.Memory != 9 {
		t.Errorf("%s %+v", verb, asked)
	}
	if key, kerr := s.GenerateKey("mine"); key != "mine" || kerr != nil {
		t.Errorf("%q, %v", key, kerr)
	}
	one, _ := s.GenerateKey("")
	two, _ := s.GenerateKey("")
	if one == two || hetero.CheckKey(one) != nil {
		t.Errorf("%q and %q are drawn", one, two)
	}
	if _, err = s.GenerateKey("/"); !errors.Is(err, hetero.ErrInvalid) {
		t.Errorf("a prefix that is no key: %v", err)
	}
	if by := r.caller(); by.UID != 0 || by.PID != os.Getpid() || len(by.Groups) != 1 {
		t.Errorf("begun for %+v", by)
	}
}

// TestSessionTellsErrors checks that each failure of a whole call, and of a key, is passed
// on with its text.
func TestSessionTellsErrors(t *testing.T) {
	r := newKeyedRig(t, 0)
	s := r.open(t)
	keys, lists := []string{"a"}, listOf(1)
	for _, status := range hetero.Statuses() {
		failure := fmt.Errorf("key %q: %w, alas", "a", status.Err)
		want := status.Err
		if errors.Is(want, hetero.ErrClosed) {
			want = hetero.ErrDisconnected // the session was not closed here
		}
		r.last().fail(failure)
		_, merr := s.DevMSet(t.Context(), keys, lists)
		_, perr := s.DevPublish(t.Context(), keys, lists)
		_, berr := s.AsyncMSetD2H(t.Context(), keys, lists, hetero.SetOptions{})
		_, xerr := s.Exist(t.Context(), keys)
		_, rerr := s.PreRegister(t.Context(), hetero.Memory{Device: "sim0", Share: memoryText(), Files: []*os.File{kit.Memfd(t, 1, memorySize)}})
		for i, err := range []error{merr, perr, berr, xerr, rerr, s.Unregister(t.Context(), 1)} {
			if !errors.Is(err, want) || err.Error() != failure.Error() {
				t.Errorf("call %d: %v is told as %v", i, failure, err)
			}
		}
		r.last().fail(nil)
		futures, err := s.DevPublish(t.Context(), keys, lists)
		fatal(t, err)
		r.last().end("a", failure)
		if err = futures[0].Wait(t.Context()); !errors.Is(err, want) || err.Error() != failure.Error() {
			t.Errorf("future: %v is told as %v", failure, err)
		}
	}
}

func TestFuturesEndAsTheyEnd(t *testing.T) {
	r := newKeyedRig(t, 0)
	s := r.open(t)
	keys := []string{"a", keyMissing, "b", "c"}
	for name, begin := range map[string]func() ([]*hetero.Future, error){
		"publish": func() ([]*hetero.Future, error) { return s.DevPublish(t.Context(), keys, listOf(4)) },
		"subscribe": func() ([]*hetero.Future, error) {
			return s.DevSubscribe(t.Context(), keys, listOf(4), hetero.SubscribeOptions{})
		},
	} {
		futures, err := begin()
		fatal(t, err)
		// Failures up to then are reported when the call returns.
		if !errors.Is(futures[1].Err(), hetero.ErrNotFound) {
			t.Errorf("%s: the second ends with %v", name, futures[1].Err())
		}
		r.last().end("c", nil)
		fatal(t, futures[3].Wait(t.Context()))
		if ended(futures[0]) || ended(futures[2]) {
			t.Errorf("%s: others have ended", name)
		}
		r.last().end("a", nil)
		r.last().end("b", hetero.ErrOwnerGone)
		fatal(t, futures[0].Wait(t.Context()))
		if err = futures[2].Wait(t.Context()); !errors.Is(err, hetero.ErrOwnerGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func ended(f *hetero.Future) bool {
	select {
	case <-f.Done():
		return true
	default:
		return false
	}
}

// TestContextEndsCalls ends calls by their context; the calls of the client behind the
// session must end too.
func TestContextEndsCalls(t *testing.T) {
	r := newKeyedRig(t, 0)
	s := r.open(t)
	get := func(ctx context.Context) <-chan hetero.Results {
		got := make(chan hetero.Results, 1)
		go func() {
			results, _ := s.DevMGet(ctx, []string{"a", keyStuck}, listOf(2), hetero.GetOptions{})
			got <- results
		}()
		kit.Eventually(t, sessionPatience, func() bool { return r.last().waiting() == 1 || ctx.Err() != nil })
		return got
	}
	over := func(results hetero.Results, want error) {
		// The daemon notices that the call was abandoned, but not why.
		if len(results) != 2 || !errors.Is(results[1].Err, hetero.ErrInterrupted) && !errors.Is(results[1].Err, want) {
			t.Fatalf("%v, want %v", results, want)
		}
		if r.last().waiting() != 0 {
			t.Error("the call goes on")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := get(ctx)
	cancel()
	over(<-got, hetero.ErrInterrupted)
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	over(<-get(ctx), hetero.ErrTimeout)
	cancel()
	ctx, cancel = context.WithCancel(t.Context())
	futures, err := s.DevSubscribe(ctx, []string{"a"}, listOf(1), hetero.SubscribeOptions{})
	fatal(t, err)
	published, err := s.DevPublish(ctx, []string{"b"}, listOf(1))
	fatal(t, err)
	cancel()
	if err = futures[0].Wait(t.Context()); !errors.Is(err, hetero.ErrInterrupted) {
		t.Errorf("a subscription: %v", err)
	}
	// What is published stays.
	if _, err = s.DevMSet(t.Context(), []string{"c"}, listOf(1)); err != nil || ended(published[0]) {
		t.Errorf("%v; the publication has ended: %v", err, published[0].Err())
	}
}

// TestAsyncReturnsBeforeTheEnd makes each background call on a key that does not complete
// before the session ends: the call returns nevertheless.
func TestAsyncReturnsBeforeTheEnd(t *testing.T) {
	r := newKeyedRig(t, 0)
	s := r.open(t)
	keys := []string{keyStuck}
	set, err := s.AsyncMSetD2H(t.Context(), keys, listOf(1), hetero.SetOptions{})
	fatal(t, err)
	get, err := s.AsyncMGetH2D(t.Context(), keys, listOf(1), hetero.GetOptions{})
	fatal(t, err)
	del, err := s.AsyncDevDelete(t.Context(), keys)
	fatal(t, err)
	batches := []*hetero.Batch{set, get, del}
	for i, b := range batches {
		select {
		case <-b.Done():
			t.Errorf("call %d had ended when it returned", i)
		default:
		}
	}
	fatal(t, s.Close())
	for i, b := range batches {
		if _, err = b.Wait(t.Context()); !errors.Is(err, hetero.ErrClosed) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// TestCloseEndsAll closes a session with calls in progress.
func TestCloseEndsAll(t *testing.T) {
	r := newKeyedRig(t, 0)
	s := r.open(t)
	futures, err := s.DevPublish(t.Context(), []string{"a"}, listOf(1))
	fatal(t, err)
	batch, err := s.AsyncMGetH2D(t.Context(), []string{keyStuck}, listOf(1), hetero.GetOptions{})
	fatal(t, err)
	got := make(chan error, 1)
	go func() {
		_, gerr := s.DevMGet(t.Context(), []string{keyStuck}, listOf(1), hetero.GetOptions{})
		got <- gerr
	}()
	kit.Eventually(t, sessionPatience, func() bool { return r.last().waiting() == 2 })
	fatal(t, s.Close())
	if !ended(futures[0]) || !errors.Is(futures[0].Err(), hetero.ErrWithdrawn) {
		t.Errorf("the publication: %v", futures[0].Err())
	}
	if err = <-got; !errors.Is(err, hetero.ErrClosed) {
		t.Errorf("a call under way: %v", err)
	}
	if _, err = batch.Wait(t.Context()); !errors.Is(err, hetero.ErrClosed) {
		t.Errorf("one in the background: %v", err)
	}
	if n := r.last().ended(); n != 1 {
		t.Errorf("the client behind it was closed %d times", n)
	}
	if _, err = s.Exist(t.Context(), []string{"a"}); !errors.Is(err, hetero.ErrClosed) {
		t.Errorf("a call behind the end: %v", err)
	}
	fatal(t, s.Close())
}

// TestServerEndsSessions ends the server with calls in progress.
func TestServerEndsSessions(t *testing.T) {
	r := newKeyedRig(t, 0)
	s := r.open(t)
	futures, err := s.DevPublish(t.Context(), []string{"a"}, listOf(1))
	fatal(t, err)
	got := make(chan error, 1)
	go func() {
		_, gerr := s.DevMGet(t.Context(), []string{keyStuck}, listOf(1), hetero.GetOptions{})
		got <- gerr
	}()
	kit.Eventually(t, sessionPatience, func() bool { return r.last().waiting() == 1 })
	watch, err := client.New(r.socket).Watch(t.Context())
	fatal(t, err)
	fatal(t, r.server.EndShares(t.Context()))
	if r.last().ended() != 1 {
		t.Error("the client behind the session lives")
	}
	if err = <-got; !errors.Is(err, hetero.ErrDisconnected) {
		t.Errorf("a call under way: %v", err)
	}
	if err = futures[0].Wait(t.Context()); err == nil {
		t.Error("a publication was received by nobody")
	}
	if _, err = watch.Next(t.Context()); !errors.Is(err, hetero.ErrDisconnected) {
		t.Errorf("watch: %v", err)
	}
	fatal(t, watch.Close())
	kit.Eventually(t, sessionPatience, func() bool {
		_, eerr := s.Exist(t.Context(), []string{"a"})
		return errors.Is(eerr, hetero.ErrDisconnected)
	})
	if _, err = client.OpenSession(t.Context(), r.socket); err == nil {
		t.Error("a session was opened behind the end")
	}
	fatal(t, s.Close())
}

// TestSessionHasManyKeys makes a call of the maximum size.
func TestSessionHasManyKeys(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	s := r.open(t)
	keys := make([]string, hetero.MaxKeys)
	lists := listOf(len(keys))
	for i := range keys {
		keys[i] = fmt.Sprintf("%0*d", hetero.MaxKeyLen, i)
		lists[i].Blobs = slices.Repeat(lists[i].Blobs, 8)
	}
	results, err := s.DevMSet(t.Context(), keys, lists)
	if err != nil || len(results) != len(keys) || results[9999].Key != keys[9999] {
		t.Fatalf("%d results, %v", len(results), err)
	}
	if _, asked := r.last().last(); len(asked.Keys) != len(keys) || len(asked.Lists[9999].Blobs) != 16 {
		t.Error("not all has come")
	}
	futures, err := s.DevPublish(t.Context(), keys, lists)
	fatal(t, err)
	for _, key := range keys {
		r.last().end(key, nil)
	}
	for _, f := range futures {
		fatal(t, f.Wait(t.Context()))
	}
	if _, err = s.DevMSet(t.Context(), append(keys, "more"), append(lists, lists[0])); !errors.Is(err, hetero.ErrInvalid) {
		t.Errorf("10 001 keys: %v", err)
	}
	huge := listOf(1)
	huge[0].Blobs = slices.Repeat(huge[0].Blobs, adminapi.MaxCall/40)
	if _, err = s.DevMSet(t.Context(), keys[:1], huge); !errors.Is(err, hetero.ErrInvalid) || !strings.Contains(err.Error(), "the maximum is") {
		t.Errorf("too long a call: %v", err)
	}
}

// A call that is too large for another user, but not for root and the owner, is reported as
// invalid: it would never fit, so waiting is useless.
func TestCallTooLargeForAnotherUser(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	s := r.open(t)
	huge := listOf(1)
	huge[0].Blobs = slices.Repeat(huge[0].Blobs, adminapi.MaxCall/100)
	if _, err := s.DevMSet(t.Context(), []string{"k"}, huge); !errors.Is(err, hetero.ErrInvalid) || !strings.Contains(err.Error(), "for this user") {
		t.Errorf("%v", err)
	}
}

func TestRegisterCarriesDescriptors(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	s := r.open(t)
	f := kit.Memfd(t, 3, memorySize)
	id, err := s.PreRegister(t.Context(), hetero.Memory{Device: "sim0", Share: memoryText(), Files: []*os.File{f}})
	if err != nil || id != 7 {
		t.Fatalf("%d, %v", id, err)
	}
	m, content := r.last().registered()
	if m.Device != "sim0" || m.Share.PID != os.Getpid() || *m.Share.Pieces[0].FD != 0 || kit.DiffAt(content, 3, 0) >= 0 {
		t.Errorf("registered %+v", m)
	}
	_, err = s.PreRegister(t.Context(), hetero.Memory{File: f})
	if m, _ = r.last().registered(); err != nil || m.File == nil {
		t.Errorf("a file: %v, %+v", err, m)
	}
	for name, c := range map[string]struct {
		memory hetero.Memory
		want   error
	}{
		"nothing": {hetero.Memory{Device: "sim0"}, hetero.ErrInvalid},
		"both":    {hetero.Memory{Share: memoryText(), File: f}, hetero.ErrInvalid},
		"more":    {hetero.Memory{Files: []*os.File{f}, File: f}, hetero.ErrInvalid},
		"local":   {hetero.Memory{Local: new(devices.Memory)}, hetero.ErrUnsupported},
	} {
		if _, err = s.PreRegister(t.Context(), c.memory); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
