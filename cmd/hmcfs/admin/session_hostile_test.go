package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// byHand is a client without the library, which holds a session.
type byHand struct {
	t      testing.TB
	socket string
	held   net.Conn
	id     string
}

// holdByHand opens a session by hand.
func holdByHand(t testing.TB, socket string) *byHand {
	t.Helper()
	h := &byHand{t: t, socket: socket}
	conn, resp := h.send(adminapi.PathSession, "", "")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("answered %s", resp.Status)
	}
	var line adminapi.SessionLine
	fatal(t, json.NewDecoder(resp.Body).Decode(&line))
	h.held, h.id = conn, line.Session
	return h
}

// send posts a request on a connection of its own.
func (h *byHand) send(path, session, body string) (net.Conn, *http.Response) {
	h.t.Helper()
	conn := h.write(path, session, body)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	fatal(h.t, err)
	return conn, resp
}

// write posts a request, and does not read the answer.
func (h *byHand) write(path, session, body string) net.Conn {
	h.t.Helper()
	conn, err := net.Dial("unix", h.socket)
	fatal(h.t, err)
	h.t.Cleanup(func() { _ = conn.Close() })
	fatal(h.t, conn.SetDeadline(time.Now().Add(sessionPatience)))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nHmcfs-Session: %s\r\nContent-Length: %d\r\n\r\n%s", path, session, len(body), body)
	fatal(h.t, err)
	return conn
}

// ask makes a call and returns the status and the text of the answer.
func (h *byHand) ask(verb adminapi.Verb, session, body string) (int, string) {
	h.t.Helper()
	conn, resp := h.send(adminapi.PathCall+string(verb), session, body)
	data, err := io.ReadAll(resp.Body)
	fatal(h.t, errors.Join(err, conn.Close()))
	return resp.StatusCode, string(data)
}

// TestSessionIsItsUsers has other users, root included, name the session of a user.
func TestSessionIsItsUsers(t *testing.T) {
	const alice, bob = owner + 1, owner + 2
	r := newKeyedRig(t, alice)
	h := holdByHand(t, r.socket)
	if len(h.id) != 32 {
		t.Errorf("a session is named %q", h.id)
	}
	const body = `{"keys":["a"]}`
	if code, text := h.ask(adminapi.VerbExist, h.id, body); code != 200 || !strings.Contains(text, `"exists":true`) {
		t.Fatalf("%d %s", code, text)
	}
	var words string
	for _, uid := range []int{bob, owner, 0} {
		r.uid.Store(int64(uid))
		// Guessing reveals nothing: the answer is the same for a session that does not
		// exist.
		for _, id := range []string{h.id, strings.Repeat("0", 32), "", h.id[:31], h.id + "0"} {
			for _, path := range []string{adminapi.PathCall + "exist", adminapi.PathRegister} {
				_, resp := h.send(path, id, body)
				data, err := io.ReadAll(resp.Body)
				fatal(t, err)
				if words == "" {
					words = string(data)
				}
				if resp.StatusCode != http.StatusForbidden || string(data) != words {
					t.Errorf("user %d with %q: %d %s, others are told %s", uid, id, resp.StatusCode, data, words)
				}
			}
		}
	}
}

// TestSessionEndsWithItsConnection ends the connection in both directions, with calls in
// progress.
func TestSessionEndsWithItsConnection(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	for name, end := range map[string]func(net.Conn) error{
		"closed": net.Conn.Close,
		"left": func(c net.Conn) error {
			u, _ := c.(*net.UnixConn)
			return u.CloseWrite()
		},
		"more bytes": func(c net.Conn) error {
			_, err := io.WriteString(c, "GET / HTTP/1.1\r\n")
			return errors.Join(err, c.Close())
		},
	} {
		h := holdByHand(t, r.socket)
		behind := r.last()
		stuck := h.write(adminapi.PathCall+"mget", h.id, `{"keys":["stuck"]}`)
		kit.Eventually(t, sessionPatience, func() bool { return behind.waiting() == 1 })
		fatal(t, end(h.held))
		resp, err := http.ReadResponse(bufio.NewReader(stuck), nil)
		fatal(t, err)
		if text, rerr := io.ReadAll(resp.Body); rerr != nil || !strings.Contains(string(text), `"code":"closed"`) {
			t.Errorf("%s: a call under way is told %s, %v", name, text, rerr)
		}
		kit.Eventually(t, sessionPatience, func() bool {
			code, _ := h.ask(adminapi.VerbExist, h.id, `{"keys":["a"]}`)
			return code == http.StatusForbidden
		})
	}
}

// TestWhoReadsNothing leaves answers unread: neither other calls nor the end of the session
// are delayed for long.
func TestWhoReadsNothing(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	h := holdByHand(t, r.socket)
	behind := r.last()
	keys, err := json.Marshal(strings.Fields(strings.Repeat("a ", 200_000)))
	fatal(t, err)
	for range 10 {
		h.write(adminapi.PathCall+"exist", h.id, `{"keys":`+string(keys)+`}`)
	}
	if code, _ := h.ask(adminapi.VerbExist, h.id, `{"keys":["a"]}`); code != http.StatusOK {
		t.Errorf("a call beside them: %d", code)
	}
	fatal(t, h.held.Close())
	kit.Eventually(t, sessionPatience, func() bool { return behind.ended() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), sessionPatience)
	defer cancel()
	fatal(t, r.server.EndShares(ctx))
}

// TestOthersSessionsAreBounded opens as many sessions as another user may have; connections
// for their calls must remain.
func TestOthersSessionsAreBounded(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	var open []*client.Session
	var last error
	for range 200 {
		s, err := client.OpenSession(t.Context(), r.socket)
		if last = err; err != nil {
			break
		}
		open = append(open, s)
	}
	if !errors.Is(last, hetero.ErrBusy) || len(open) < 8 || len(open) > 100 {
		t.Errorf("%d sessions are open, then: %v", len(open), last)
	}
	for _, s := range open {
		for i := range 10 {
			_, err := s.DevPublish(t.Context(), []string{fmt.Sprint(i)}, listOf(1))
			fatal(t, err)
		}
	}
	r.uid.Store(owner + 2)
	fatal(t, r.open(t).Close())
	r.uid.Store(owner + 1)
	for _, s := range open {
		fatal(t, s.Close())
	}
	kit.Eventually(t, sessionPatience, func() error {
		s, err := client.OpenSession(t.Context(), r.socket)
		if err != nil {
			return err
		}
		return s.Close()
	})
}

// TestWrongCalls sends calls that no proper client sends.
func TestWrongCalls(t *testing.T) {
	r := newKeyedRig(t, 0)
	h := holdByHand(t, r.socket)
	for body, want := range map[string]string{
		`{`:                      "unexpected EOF",
		`[]`:                     "cannot unmarshal",
		`{"x":1}`:                "unknown field",
		`{} {}`:                  "after the JSON value",
		`{"keys":7}`:             "cannot unmarshal",
		`{"timeout":20}`:         "",
		`{"timeout":"soon"}`:     "invalid duration",
		`{"memory":-1}`:          "cannot unmarshal",
		`{"lists":[{"blobs":1}]`: "",
		`{"lists":[` + strings.Repeat("{},", 200_000) + `{}]}`: "values in",
	} {
		if code, text := h.ask(adminapi.VerbMSet, h.id, body); code != http.StatusBadRequest || !strings.Contains(text, want) || !strings.Contains(text, `"code":"invalid"`) {
			t.Errorf("%.40s: %d %s", body, code, text)
		}
	}
	if verb, _ := r.last().last(); verb != "" {
		t.Errorf("the client behind was asked for %s", verb)
	}
	if code, _ := h.ask("nothing", h.id, `{}`); code != http.StatusNotFound {
		t.Errorf("a verb that is none: %d", code)
	}
	if _, resp := h.send(adminapi.PathSession, "", `{}`); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a session with a body: %s", resp.Status)
	}
	conn, err := net.Dial("unix", r.socket)
	fatal(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST %sexist HTTP/1.1\r\nHost: h\r\nHmcfs-Session: %s\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", adminapi.PathCall, h.id)
	fatal(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a call of unknown length: %v, %v", resp, err)
	}
}

// TestSessionIsRefused checks the error for users who may not have a session.
func TestSessionIsRefused(t *testing.T) {
	r := newKeyedRig(t, 0)
	r.refuseAll(fmt.Errorf("%w: not today", hetero.ErrUnsupported))
	if _, err := client.OpenSession(t.Context(), r.socket); !errors.Is(err, hetero.ErrUnsupported) || !strings.Contains(err.Error(), "not today") {
		t.Errorf("%v", err)
	}
	if _, err := client.OpenSession(t.Context(), r.socket+"x"); !errors.Is(err, client.ErrNoDaemon) {
		t.Errorf("where nobody listens: %v", err)
	}
	r.uid.Store(-1)
	if _, err := client.OpenSession(t.Context(), r.socket); !errors.Is(err, hetero.ErrNotAuthorized) {
		t.Errorf("by nobody knows whom: %v", err)
	}
	closed := rig(t, admin.Options{}, owner+1)
	if _, err := client.OpenSession(t.Context(), closed.socket); !errors.Is(err, hetero.ErrNotAuthorized) {
		t.Errorf("where others are not let in: %v", err)
	}
}

// TestWatchAndKeys checks the lines of event streams and listings.
func TestWatchAndKeys(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	c := client.New(r.socket)
	watch, err := c.Watch(t.Context())
	fatal(t, err)
	want := objects.Event{
		Seq: 5, Time: "2027-01-02T03:04:05.000000006Z", Kind: objects.EventCreated, Key: "a&<b",
		Ino: 1 << 40, Device: "sim0", Size: 1 << 50, Dropped: 3,
	}
	for range 500 {
		r.queue <- want
		got, nerr := watch.Next(t.Context())
		fatal(t, nerr)
		if got.Seq != want.Seq || got.Time != want.Time || got.Kind != string(want.Kind) || got.Key != want.Key ||
			got.Ino != want.Ino || metadata.DeviceName(got.Device) != want.Device || got.Size != want.Size || got.Dropped != want.Dropped {
			t.Fatalf("%+v is told as %+v", want, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = watch.Next(ctx); !errors.Is(err, hetero.ErrInterrupted) {
		t.Errorf("%v", err)
	}
	fatal(t, watch.Close())
	var listing []adminapi.Key
	for i := range 5000 {
		state := ""
		if i%2 == 1 {
			state = "published"
		}
		listing = append(listing, adminapi.Key{Key: fmt.Sprintf("%d-%04d", i%2, i), Size: 9, State: state})
	}
	r.list(listing, nil)
	keys, err := c.Keys(t.Context(), "1-", true)
	if err != nil || len(keys) != 2500 || keys[0].Key != "1-0001" || keys[0].Size != 9 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	keys, err = c.Keys(t.Context(), "1-", false)
	if err != nil || len(keys) != 0 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	// A listing that breaks off is an error.
	r.list(listing, errors.New("the records can't be read"))
	for _, prefix := range []string{"", "x"} {
		if keys, err = c.Keys(t.Context(), prefix, false); err == nil {
			t.Errorf("%d keys of a list that broke off", len(keys))
		}
	}
}

// BenchmarkCall is one call that does nothing.
func BenchmarkCall(b *testing.B) {
	r := newKeyedRig(b, 0)
	s := r.open(b)
	keys, lists := []string{"a"}, listOf(1)
	for b.Loop() {
		if _, err := s.DevMGet(b.Context(), keys, lists, hetero.GetOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
