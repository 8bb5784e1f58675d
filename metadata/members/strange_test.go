package members_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memcoord"
)

// puts stores a value in the service, whatever was there.
func puts(t *testing.T, c coord.Service, name string, value []byte) {
	t.Helper()
	if _, err := c.Delete(t.Context(), []coord.Entry{{Name: name}}); err != nil {
		t.Fatal(err)
	}
	if results, err := c.Create(t.Context(), []coord.Entry{{Name: name, Value: value}}, nil); err != nil || results[0].Err != nil {
		t.Fatal(results, err)
	}
}

// text returns a record as stored in the service.
func text(t *testing.T, r members.Record) []byte {
	t.Helper()
	p, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAltered: a node whose record is altered by any writer to the service writes it again.
func TestAltered(t *testing.T) {
	for name, alter := range map[string]func(r *members.Record) []byte{
		"another address": func(r *members.Record) []byte { r.Addresses = []string{"evil:1"}; return nil },
		"another ID":      func(r *members.Record) []byte { r.ID = "evil"; return nil },
		"another epoch":   func(r *members.Record) []byte { r.Epoch--; return nil },
		"nonsense":        func(*members.Record) []byte { return []byte("nonsense") },
		"another name":    func(r *members.Record) []byte { r.Name = "c"; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memcoord.NewServer(memcoord.Options{})
				a, b := join(t, s, record("a")), join(t, s, record("b"))
				r := b.Self()
				value := alter(&r)
				if value == nil {
					value = text(t, r)
				}
				puts(t, a.client, "nodes/b", value)
				pass(3 * members.DefaultTTL)
				synctest.Wait()
				if e, err := a.client.Get(t.Context(), "nodes/b"); err != nil || string(e.Value) != string(text(t, b.Self())) {
					t.Errorf("in the service: %s, %v", e.Value, err)
				}
				if got, _ := a.Get("b"); got.ID != "id-b" || !slices.Equal(got.Addresses, []string{"b:7070"}) {
					t.Errorf("a sees %+v", got)
				}
				if st := b.State(); st.Problem != "" {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// TestAddressesOfRecords: nodes connect to the addresses in a record, so only addresses
// that a node can have are accepted.
func TestAddressesOfRecords(t *testing.T) {
	rank := members.Name("c").Rank()
	good := []string{"10.0.0.1:7070", "tcp:[2001:db8::1]:1", "host-1.example:65535", fmt.Sprintf("unix:/run/hmcfs/node-%08x.sock", rank)}
	bad := []string{
		"", "x", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:http", ":7070", "0.0.0.0:7070", "[::]:7070", "224.0.0.1:1",
		"127.0.0.1:2379", "[::1]:6379", "[::ffff:127.0.0.1]:22", "localhost:22", "LOCALHOST.:22", "x.localhost:22", "169.254.169.254:80",
		"[fe80::1%eth0]:1", "a b:1", "a\nb:1", "unix:/run/docker.sock", "unix:", "unix:relative/node-00000001.sock",
		fmt.Sprintf("unix:/run/../tmp/node-%08x.sock", rank), fmt.Sprintf("unix:node-%08x.sock", rank),
		fmt.Sprintf("unix:/tmp/node-%08x.sock", rank+1), "unix:@abstract",
		"127.1:22", "2130706433:22", "0x7f.0X1:22",
	}
	near := []string{"127.0.0.1:2379", "[::1]:6379", "[::ffff:127.0.0.1]:22", "localhost:22", "LOCALHOST.:22", "x.localhost:22"}
	for name, c := range map[string]struct{ self, want []string }{
		"of another machine": {[]string{"a:7070"}, good},
		"of this machine":    {[]string{"127.0.0.2:7070"}, append(slices.Clone(good), near...)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memcoord.NewServer(memcoord.Options{})
				self := record("a")
				self.Addresses = c.self
				a := join(t, s, self)
				var got []string
				for _, addresses := range [][]string{good, bad[:14], bad[14:]} {
					r := record("c")
					r.Addresses = addresses
					puts(t, a.client, "nodes/c", text(t, r))
					pass(time.Second)
					synctest.Wait()
					seen, ok := a.Get("c")
					if !ok {
						t.Fatalf("no node with %q", addresses)
					}
					got = append(got, seen.Addresses...)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("taken (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestManyRecords: of more records than a cluster can have, and of larger ones, only as
// many as the bounds allow are accepted, including those of known nodes, and all are
// dropped when they are removed. Unreadable ones are reported once.
func TestManyRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{})
		core, told := observer.New(zap.WarnLevel)
		client := s.Client()
		a, err := members.Join(t.Context(), members.Options{Service: client, Self: record("a"), Logger: zap.New(core)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { leave(t, a) })
		join(t, s, record("zz"))
		all := manyRecords(t)
		if _, err := client.Create(t.Context(), all, nil); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		synctest.Wait()
		if n := len(a.Nodes()); n != members.MaxNodes {
			t.Errorf("%d nodes, want %d", n, members.MaxNodes)
		}
		if _, ok := a.Get("zz"); !ok {
			t.Error("zz is not there any more")
		}
		if n := a.State().Unreadable; n != 702 {
			t.Errorf("%d records are not used, want 702", n)
		}
		if n := told.Len(); n > 40 {
			t.Errorf("told %d times", n)
		}
		shortTexts(t, told.All())
		if _, err := client.Delete(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		sees(t, a, "zz")
	})
}

// manyRecords returns the records of 100 nodes more than a cluster can have, and 601
// unusable ones.
func manyRecords(t *testing.T) (all []coord.Entry) {
	t.Helper()
	put := func(name string, value []byte) {
		all = append(all, coord.Entry{Name: "nodes/" + name, Value: value})
	}
	for i := range members.MaxNodes + 100 {
		name := fmt.Sprintf("n%05d", i)
		put(name, text(t, record(name)))
	}
	for i := range 300 {
		put(fmt.Sprintf("strange%d", i), []byte("nonsense"))
		put(fmt.Sprintf("s/%d", i), text(t, record("x")))
	}
	put(strings.Repeat("x", 100_000), []byte("nonsense"))
	return all
}

// shortTexts fails the test if a log entry contains a long text.
func shortTexts(t *testing.T, lines []observer.LoggedEntry) {
	t.Helper()
	for _, e := range lines {
		for _, f := range e.Context {
			if len(f.String) > 1000 {
				t.Errorf("a line with a text of %d bytes", len(f.String))
			}
		}
	}
}

// TestRecordsGo creates and removes many records of 200 devices: no memory is kept for
// removed ones.
func TestRecordsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memcoord.NewServer(memcoord.Options{History: 1})
		a, client := join(t, s, record("a")), s.Client()
		inUse := func() int64 {
			synctest.Wait()
			a.kinds()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before, records := inUse(), kit.Rounds(100, 300, 1500)
		for range kit.Rounds(1, 1, 3) {
			var all []coord.Entry
			for i := range records {
				r := record(fmt.Sprintf("n%d", i))
				r.Devices = nil
				for d := range 200 {
					r.Devices = append(r.Devices, members.Device{Name: fmt.Sprintf("cuda%d", d), Model: "a model of a card", Total: 80 << 30})
				}
				all = append(all, coord.Entry{Name: "nodes/" + string(r.Name), Value: text(t, r)})
			}
			if _, err := client.Create(t.Context(), all, nil); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			synctest.Wait()
			if n := len(a.Nodes()); n != records {
				t.Fatalf("%d nodes", n)
			}
			if _, err := client.Delete(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			sees(t, a)
		}
		if grown := inUse() - before; grown > 8<<20 {
			t.Errorf("%d bytes more are in use", grown)
		}
	})
}
