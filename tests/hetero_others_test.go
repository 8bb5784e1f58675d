package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// No call gives another user access to keys of other users.
func TestOthersKeysAreTheirs(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{AllowOther: true})
	const n = 1 << 20
	roots, theirs := startRank(t, m, 0, "sim0", 1, n), startRank(t, m, alice, "sim0", 2, n)
	roots.do(adminapi.VerbMSet, "set")
	roots.do(adminapi.VerbMSetD2H, "stored")
	roots.begin(adminapi.VerbPublish, "offered")
	for _, key := range []string{"set", "stored"} {
		for _, verb := range []adminapi.Verb{
			adminapi.VerbMGet, adminapi.VerbDelete, adminapi.VerbExpire, adminapi.VerbInfo,
		} {
			q := adminapi.Call{Keys: []string{key}}
			if verb == adminapi.VerbMGet {
				q.Lists = theirs.whole()
			}
			if verb == adminapi.VerbExpire {
				q.TTL = adminapi.Duration(time.Second)
			}
			theirs.send(verb, q)
			if s := theirs.ends(); s.Code != "not_authorized" {
				t.Errorf("%s of root's %q: %+v", verb, key, s)
			}
		}
		theirs.send(adminapi.VerbMSet, adminapi.Call{Keys: []string{key}, Lists: theirs.whole()})
		if s := theirs.ends(); s.Code != "exists" && s.Code != "not_authorized" {
			t.Errorf("set root's %q: %+v", key, s)
		}
		theirs.send(adminapi.VerbMSetD2H, adminapi.Call{Keys: []string{key}, Lists: theirs.whole(), Existing: "replace"})
		if s := theirs.ends(); s.Code != "not_authorized" {
			t.Errorf("replace root's %q: %+v", key, s)
		}
		theirs.send(adminapi.VerbMGet, adminapi.Call{Keys: []string{key}, Lists: theirs.whole(), Replica: true})
		if s := theirs.ends(); s.Code != "not_authorized" {
			t.Errorf("be a source of root's %q: %+v", key, s)
		}
	}
	theirs.order(adminapi.VerbSubscribe, "offered", 1)
	if s := theirs.ends(); s.Code != "not_authorized" {
		t.Errorf("subscribe to root's: %+v", s)
	}
	theirs.order(adminapi.VerbPublish, "offered", 1)
	if s := theirs.ends(); s.Code != "exists" {
		t.Errorf("publish under root's key: %+v", s)
	}
	theirs.hears("offered", "exists") // the future's error, after the call's own
	// Memory that this user has not registered is refused.
	forged := theirs.whole()
	forged[0].Blobs[0].Memory = 99
	theirs.send(adminapi.VerbMSet, adminapi.Call{Keys: []string{"forged"}, Lists: forged})
	if s := theirs.ends(); s.Code != "invalid" && s.Code != "not_found" {
		t.Errorf("set out of others' memory: %+v", s)
	}
	theirs.has(2, 1)
	roots.has(1, 1)
	// Everything of the others is unchanged, and the user's own keys remain.
	reader := startRank(t, m, 0, "sim1", 3, n)
	for _, key := range []string{"set", "stored"} {
		reader.do(adminapi.VerbMGet, key)
		reader.has(1, 1)
	}
	reader.begin(adminapi.VerbSubscribe, "offered")
	reader.hears("offered", "")
	roots.hears("offered", "")
	theirs.do(adminapi.VerbMSet, "own")
	theirs.do(adminapi.VerbMGet, "own")
	theirs.do(adminapi.VerbDelete, "own")
}

// A key in another user's private directory hides no other key from a list.
func TestListsKeysBesideHiddenOnes(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{AllowOther: true})
	must(t, os.Mkdir(m.Path("host", "private"), 0o700))
	for key, path := range map[string]string{"a": "host/f", "b": "host/private/f", "c": "sim0/f"} {
		must(t, os.WriteFile(m.Path(path), []byte("1"), 0o644))
		must(t, unix.Setxattr(m.Path(path), "user.hmc.key", []byte(key), 0))
	}
	cmd := m.Command("ls-keys", "--json")
	cmd.Dir, cmd.Env = "/", append(cmd.Environ(), "HMCFS_MOUNT="+m.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: userAlice().Credential()}
	out, err := cmd.Output()
	must(t, err)
	var rows []struct{ Key, State, Path string }
	must(t, json.Unmarshal(out, &rows))
	if len(rows) != 3 {
		t.Fatalf("listed: %s", out)
	}
	for i, state := range []string{"live", "hidden", "live"} {
		if rows[i].State != state {
			t.Errorf("%+v, want %s", rows[i], state)
		}
	}
}

// Another user sees the names of keys, as in keys/, but nothing else of keys that this user
// may not read: no sizes, and no events.
func TestOthersKeysAreHidden(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{AllowOther: true})
	asAlice := func(fn func(c *client.Client)) {
		mnt.AsUser(t, userAlice(), func() { fn(m.Client()) })
	}
	var watch *client.Watch
	asAlice(func(c *client.Client) {
		var err error
		if watch, err = c.Watch(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if watch == nil {
		t.FailNow()
	}
	defer func() { must(t, watch.Close()) }()
	roots, theirs := startRank(t, m, 0, "sim0", 1, 4096), startRank(t, m, alice, "sim0", 2, 8192)
	roots.do(adminapi.VerbMSet, "hidden")
	roots.begin(adminapi.VerbPublish, "private")
	theirs.do(adminapi.VerbMSet, "own")
	asAlice(func(c *client.Client) {
		keys, err := c.Keys(t.Context(), "", false)
		if err != nil || len(keys) != 2 {
			t.Errorf("%+v, %v", keys, err)
			return
		}
		if k := keys[0]; k.Key != "hidden" || !k.Hidden || k.Size != 0 || k.Ino != 0 || k.Device != "" || k.Blobs != nil {
			t.Errorf("he learns %+v", k)
		}
		if k := keys[1]; k.Key != "own" || k.Hidden || k.Size != 8192-blobGap || len(k.Blobs) != 1 {
			t.Errorf("of theirs own he learns %+v", k)
		}
		if keys, err = c.Keys(t.Context(), "pri", true); err != nil || len(keys) != 1 || !keys[0].Hidden {
			t.Errorf("of what is published he learns %+v, %v", keys, err)
		}
		if keys, err = c.Keys(t.Context(), "x", true); err != nil || len(keys) != 0 {
			t.Errorf("%+v, %v", keys, err)
		}
	})
	e, err := watch.Next(t.Context())
	if err != nil || e.Key != "own" || e.Kind != "created" {
		t.Errorf("the first that he hears is %+v, %v", e, err)
	}
}

// A session belongs to its user, whichever process names it, and memory to its owner.
func TestOthersSessionsAreTheirs(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{AllowOther: true})
	o := newMemOwner(t, 0, 1, 4096)
	var id string
	var held net.Conn
	mnt.AsUser(t, userAlice(), func() { held, id = holdRaw(t, socketOf(m)) })
	if held == nil {
		t.FailNow()
	}
	defer func() { must(t, held.Close()) }()
	const body = `{"keys":["a"]}`
	for who, u := range map[string]mnt.User{"bob": userBob(), "root": {}} {
		mnt.AsUser(t, u, func() {
			for _, session := range []string{id, strings.Repeat("0", 32), ""} {
				answer, err := callRaw(socketOf(m), adminapi.PathCall+"exist", session, body)
				if err != nil || !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
					t.Errorf("%s with session %q: %v\n%s", who, session, err, answer)
				}
			}
		})
	}
	text := fmt.Sprintf(`{"device":"sim0","memory":{"family":"sim","pid":%d,"size":4096,"pieces":[{"kind":"memfd","fd":3,"size":4096}]}}`, o.pid())
	mnt.AsUser(t, userAlice(), func() {
		if answer, err := callRaw(socketOf(m), adminapi.PathCall+"exist", id, body); err != nil || !strings.Contains(answer, `"n":0`) {
			t.Errorf("theirs own: %v\n%s", err, answer)
		}
		if answer, err := callRaw(socketOf(m), adminapi.PathRegister, id, text); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
			t.Errorf("memory of root's process: %v\n%s", err, answer)
		}
	})
}

// holdRaw opens a session with raw HTTP, as curl does.
func holdRaw(t *testing.T, socket string) (net.Conn, string) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Error(err)
		return nil, ""
	}
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", adminapi.PathSession)
	var said []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(said), "}\n"); said = append(said, one...) {
		if _, err = c.Read(one); err != nil {
			t.Errorf("after %q: %v", said, err)
			return nil, ""
		}
	}
	_, rest, _ := strings.Cut(string(said), `"session":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return c, id
}

// callRaw makes a call with raw HTTP.
func callRaw(socket, path, session, body string) (string, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if err = c.SetDeadline(time.Now().Add(mntPatience)); err != nil {
		return "", err
	}
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s",
		path, adminapi.SessionHeader, session, len(body), body)
	data, err := io.ReadAll(c)
	return string(data), err
}
