package admin

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
)

// registry registers everything but what has no device.
type registry struct {
	hetero.Client
	last hetero.MemoryID
}

func (r *registry) PreRegister(_ context.Context, m hetero.Memory) (hetero.MemoryID, error) {
	if m.Device == "" {
		return 0, hetero.ErrInvalid
	}
	r.last++
	return r.last, nil
}

func (r *registry) Unregister(_ context.Context, id hetero.MemoryID) error {
	if id > r.last {
		return hetero.ErrNotFound
	}
	return nil
}

func (r *registry) Close() error { return nil }

// TestMetered counts what a user's sessions register together.
func TestMetered(t *testing.T) {
	t.Parallel()
	refused := &Refusals{}
	s, u := newSessions(Options{Refusals: refused}), &user{}
	begin := func() *metered {
		return &metered{Client: &registry{}, sessions: s, user: u, files: map[hetero.MemoryID]int{}}
	}
	one, other := begin(), begin()
	pieces := func(n int) hetero.Memory {
		return hetero.Memory{Device: "host", Share: &share.Memory{Pieces: make([]share.Piece, n)}, Files: make([]*os.File, 1)}
	}
	id, err := one.PreRegister(t.Context(), pieces(maxFiles-1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = other.PreRegister(t.Context(), hetero.Memory{}); !errors.Is(err, hetero.ErrInvalid) {
		t.Errorf("refused by the client: %v", err)
	}
	if _, err = other.PreRegister(t.Context(), pieces(1)); err != nil {
		t.Errorf("the last: %v", err)
	}
	if _, err = other.PreRegister(t.Context(), pieces(1)); !errors.Is(err, hetero.ErrNoMemory) {
		t.Errorf("one too many: %v", err)
	}
	if n := refused.Limits()[boundDescriptors].Refused; n != 1 {
		t.Errorf("%d refusals are counted", n)
	}
	if err = one.Unregister(t.Context(), id+1); !errors.Is(err, hetero.ErrNotFound) || u.files != maxFiles {
		t.Errorf("unregistered what is not there: %v, %d count", err, u.files)
	}
	if err = one.Unregister(t.Context(), id); err != nil || u.files != 1 {
		t.Errorf("unregistered: %v, %d count", err, u.files)
	}
	if err = other.Close(); err != nil || u.files != 0 {
		t.Errorf("closed: %v, %d count", err, u.files)
	}
}

// TestListenersAreBounded counts the event streams of an untrusted user.
func TestListenersAreBounded(t *testing.T) {
	t.Parallel()
	refused := &Refusals{}
	s := newSessions(Options{Refusals: refused})
	stranger, mine := &conn{peer: Peer{UID: 7}}, &conn{peer: Peer{UID: 7}, trusted: true}
	var leaves []func()
	for range maxListeners {
		leave, err := s.listen(stranger)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, err := s.listen(stranger); !errors.Is(err, hetero.ErrBusy) {
		t.Errorf("one too many: %v", err)
	}
	if n := refused.Limits()[boundWatches].Refused; n != 1 {
		t.Errorf("%d refusals are counted", n)
	}
	if _, err := s.listen(mine); err != nil {
		t.Errorf("the owner's: %v", err)
	}
	for _, leave := range leaves {
		leave()
	}
	if _, err := s.listen(stranger); err != nil {
		t.Errorf("when they have gone: %v", err)
	}
}

func nameOf(s *sessions, c *conn, before string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nameLocked(c, before)
}

// TestContinuedAreBounded has users, root as well, make names up until none is taken: other users continue their sessions all the same.
func TestContinuedAreBounded(t *testing.T) {
	t.Parallel()
	s := newSessions(Options{Continues: time.Minute, Continued: true})
	continues := func(c *conn) bool {
		name, err := nameOf(s, c, secret(runSize+restSize))
		if (name == "") == (err == nil) || err != nil && !errors.Is(err, errNoSession) {
			t.Fatalf("%q, %v", name, err)
		}
		return err == nil
	}
	for what, c := range map[string]*conn{
		"root": {trusted: true}, "another": {peer: Peer{UID: 7}}, "one more": {peer: Peer{UID: 8}},
	} {
		n := 0
		for n <= maxContinued && continues(c) {
			n++
		}
		if want := map[bool]int{true: maxTrustedContinued, false: maxForeignContinued}[c.trusted]; n != want {
			t.Errorf("%s: %d names, want %d", what, n, want)
		}
	}
	s.mu.Lock()
	for i := range maxContinued {
		s.continued[strconv.Itoa(i)] = struct{}{}
	}
	s.mu.Unlock()
	if continues(&conn{peer: Peer{UID: 9}}) {
		t.Error("there is no bound for all together")
	}
}

// TestNames continues sessions by their names.
func TestNames(t *testing.T) {
	t.Parallel()
	before := newSessions(Options{})
	name := func(s *sessions, of string) (string, error) { return nameOf(s, &conn{peer: Peer{UID: 7}}, of) }
	old, err := name(before, "")
	if err != nil {
		t.Fatal(err)
	}
	next := newSessions(Options{Continues: time.Minute, Continued: true})
	own, err := name(next, "")
	if err != nil || own == old {
		t.Fatalf("%q, %v", own, err)
	}
	if got, err := name(next, old); err != nil || got != old {
		t.Errorf("one of the daemon before: %q, %v", got, err)
	}
	for what, refused := range map[string]struct {
		by *sessions
		of string
	}{
		"continued twice": {next, old}, "one of this daemon": {next, own}, "no name": {next, "../x"}, "a short one": {next, old[:20]},
		"a long one": {next, old + "00"}, "by one that follows none": {before, own},
		"too late": {func() *sessions { s := newSessions(Options{Continued: true}); s.until = time.Now().Add(-1); return s }(), old},
	} {
		if got, err := name(refused.by, refused.of); !errors.Is(err, errNoSession) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}
