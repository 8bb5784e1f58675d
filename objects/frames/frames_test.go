package frames_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// calls are calls that use every field.
func calls() []adminapi.Call {
	rng := rand.New(rand.NewPCG(1, 2))
	many := adminapi.Call{}
	for range 300 {
		key := make([]byte, 1+rng.IntN(255))
		for i := range key {
			key[i] = byte(rng.Uint32())
		}
		many.Keys = append(many.Keys, string(key))
		l := hetero.DeviceBlobList{Device: "cuda13", SourceOffset: rng.Int64()}
		for range rng.IntN(9) {
			l.Blobs = append(l.Blobs, hetero.Blob{
				Memory: hetero.MemoryID(rng.Uint64()), Off: devices.Offset(rng.Uint64()), Size: devices.Size(rng.Uint64()),
			})
		}
		many.Lists = append(many.Lists, l)
	}
	return []adminapi.Call{
		{},
		{Keys: []string{"a"}, Lists: []hetero.DeviceBlobList{{Device: "sim0", Blobs: []hetero.Blob{{Memory: 1, Off: 4096, Size: 1 << 40}}}}},
		{Keys: []string{"", "ключ", "a/b"}, Timeout: adminapi.Duration(20 * time.Second), Replica: true},
		{Keys: []string{"x"}, TTL: adminapi.Duration(time.Hour), Existing: hetero.ExistingReplace, Async: true},
		{Keys: []string{"x"}, Existing: hetero.ExistingFail, Published: true},
		{Keys: []string{"x"}, Existing: hetero.ExistingSkip, Received: true, Memory: 1<<64 - 1, Timeout: -1},
		many,
	}
}

func appended(t testing.TB, q adminapi.Call) []byte {
	t.Helper()
	b, err := frames.AppendCall(nil, &q)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// normal replaces empty slices, which the format does not distinguish from nil ones.
func normal(q adminapi.Call) adminapi.Call {
	if len(q.Keys) == 0 {
		q.Keys = nil
	}
	if len(q.Lists) == 0 {
		q.Lists = nil
	}
	lists := append([]hetero.DeviceBlobList(nil), q.Lists...)
	for i := range lists {
		if len(lists[i].Blobs) == 0 {
			lists[i].Blobs = nil
		}
	}
	q.Lists = lists
	return q
}

// TestCallRoundTrip decodes every call, into fresh memory and into that of the call before.
func TestCallRoundTrip(t *testing.T) {
	var reused adminapi.Call
	var names frames.Names
	for i, want := range calls() {
		body := appended(t, want)
		var got adminapi.Call
		for _, into := range []*adminapi.Call{&got, &reused} {
			if err := frames.ParseCall(body, into, &names); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			if !reflect.DeepEqual(normal(*into), normal(want)) {
				t.Errorf("call %d: %+v is read as %+v", i, want, *into)
			}
		}
	}
}

// TestCallIsOfItsOwn changes a body after it was decoded.
func TestCallIsOfItsOwn(t *testing.T) {
	want := calls()[1]
	body := appended(t, want)
	var got adminapi.Call
	if err := frames.ParseCall(body, &got, new(frames.Names)); err != nil {
		t.Fatal(err)
	}
	for i := range body {
		body[i] = 0xff
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestCallIsCut decodes every prefix of a body, and a body with one byte more.
func TestCallIsCut(t *testing.T) {
	body := appended(t, calls()[2])
	var q adminapi.Call
	for n := range body {
		if err := frames.ParseCall(body[:n], &q, new(frames.Names)); !errors.Is(err, frames.ErrFrame) {
			t.Errorf("%d of %d bytes: %v", n, len(body), err)
		}
	}
	if err := frames.ParseCall(append(body, 0), &q, new(frames.Names)); !errors.Is(err, frames.ErrFrame) {
		t.Errorf("one byte more: %v", err)
	}
}

// TestCallIsRefused encodes what the format has no room for.
func TestCallIsRefused(t *testing.T) {
	for name, q := range map[string]adminapi.Call{
		"rule":   {Existing: "perhaps"},
		"key":    {Keys: []string{strings.Repeat("k", 1<<16)}},
		"device": {Lists: []hetero.DeviceBlobList{{Device: devices.Name(strings.Repeat("d", 256))}}},
	} {
		if _, err := frames.AppendCall(nil, &q); !errors.Is(err, frames.ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCallBytes compares a call, and the same asked again, with the bytes that docs/wire.md shows.
func TestCallBytes(t *testing.T) {
	want := []byte{
		0x55, 0, 0, 0, 1, 7, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
		0, 0x94, 0x35, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		2, 0, 'k', 'v',
		4, 's', 'i', 'm', '0', 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
		1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0,
	}
	again := bytes.Clone(want)
	again[6] = 1
	copy(again[32:], []byte{0, 0x2f, 0x68, 0x59})
	for _, c := range []struct {
		timeout time.Duration
		again   bool
		want    []byte
	}{{2 * time.Second, false, want}, {1500 * time.Millisecond, true, again}} {
		q := adminapi.Call{
			Keys:    []string{"kv"},
			Lists:   []hetero.DeviceBlobList{{Device: "sim0", Blobs: []hetero.Blob{{Memory: 1, Size: 4096}}}},
			Timeout: adminapi.Duration(c.timeout),
		}
		b := frames.Begin(nil, frames.KindCall, frames.VerbNumber(adminapi.VerbMGet), 7)
		b, err := frames.AppendCall(b, &q)
		if err != nil {
			t.Fatal(err)
		}
		if c.again {
			frames.SetAgain(b)
		}
		if err = frames.Finish(b, 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, c.want) {
			t.Errorf("again %t: encoded as\n% x, want\n% x", c.again, b, c.want)
		}
	}
}

func lines() []adminapi.Line {
	return []adminapi.Line{
		{N: 0},
		{N: 3, Skipped: true},
		{N: 2, Exists: true},
		{N: 1, Code: "not_found", Error: "can't find objects"},
		{N: 4, Device: "cuda0", Size: 12, Blobs: []devices.Size{5, 7}},
		{N: 5, Size: 9, Blobs: []devices.Size{9}, Code: "lost", Error: ""},
	}
}

// TestLineRoundTrip decodes all kinds of lines, in one body.
func TestLineRoundTrip(t *testing.T) {
	var body []byte
	for _, l := range lines() {
		body = frames.AppendLine(body, &l)
	}
	var got []adminapi.Line
	keep := func(l adminapi.Line) error {
		got = append(got, l)
		return nil
	}
	if err := frames.ParseLines(body, 6, nil, keep); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, lines()) {
		t.Errorf("%+v", got)
	}
	if plain, line := frames.AppendPlain(nil, 7), frames.AppendLine(nil, &adminapi.Line{N: 7}); !bytes.Equal(plain, line) {
		t.Errorf("a plain line is encoded as % x, and as % x", plain, line)
	}
	got = nil
	plain := func(n int) { got = append(got, adminapi.Line{N: n, Key: "plain"}) }
	if err := frames.ParseLines(body, 6, plain, keep); err != nil {
		t.Fatal(err)
	}
	if got[0].Key != "plain" || !reflect.DeepEqual(got[1:], lines()[1:]) {
		t.Errorf("with plain lines apart: %+v", got)
	}
	// A line of a key that the call does not have.
	if err := frames.ParseLines(body, 5, nil, keep); !errors.Is(err, frames.ErrFrame) {
		t.Errorf("%v", err)
	}
	if err := frames.ParseLines(body, 0, plain, keep); !errors.Is(err, frames.ErrFrame) {
		t.Errorf("%v", err)
	}
	want := errors.New("enough")
	if err := frames.ParseLines(body, 6, nil, func(adminapi.Line) error { return want }); !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
	whole := 0
	for n := range body {
		if frames.ParseLines(body[:n], 6, nil, func(adminapi.Line) error { return nil }) == nil {
			whole++ // it ends between two lines
		}
	}
	if whole != len(lines()) {
		t.Errorf("%d of %d prefixes are whole lines, want %d", whole, len(body), len(lines()))
	}
}

// TestFailureIsBounded sends a text and a code that are too long.
func TestFailureIsBounded(t *testing.T) {
	long := frames.Failure{Code: strings.Repeat("c", 300), Text: strings.Repeat("t", 1<<20)}
	got, err := frames.ParseFailure(frames.AppendFailure(nil, long))
	if err != nil || len(got.Code) != 255 || len(got.Text) != 4096 {
		t.Errorf("%d, %d, %v", len(got.Code), len(got.Text), err)
	}
	if got, err = frames.ParseFailure(nil); err != nil || got != (frames.Failure{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestHeader decodes headers that are none.
func TestHeader(t *testing.T) {
	good := frames.Header{Size: 3, Kind: frames.KindCall, Verb: 2, ID: 1 << 63}
	if got, err := frames.ParseHeader(good.Append(nil)); err != nil || got != good {
		t.Errorf("%+v, %v", got, err)
	}
	repeated := good.Append(nil)
	frames.SetAgain(repeated)
	if got, err := frames.ParseHeader(repeated); err != nil || !got.Again || string(got.Append(nil)) != string(repeated) {
		t.Errorf("%+v, %v", got, err)
	}
	carrying := frames.BeginRequest(nil, frames.RequestBind, frames.MaxDescriptors, 9)
	if got, err := frames.ParseHeader(carrying); err != nil || got.Descriptors != frames.MaxDescriptors || got.Verb != uint8(frames.RequestBind) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, change := range map[string]func(b []byte){
		"kind 0":      func(b []byte) { b[4] = 0 },
		"kind 15":     func(b []byte) { b[4] = 15 },
		"answer verb": func(b []byte) { b[4] = byte(frames.KindFileAnswer) },
		"size":        func(b []byte) { b[3] = 0x10 },
		"padding":     func(b []byte) { b[7] = 1 },
		"again twice": func(b []byte) { b[6] = 2 },
		"hello again": func(b []byte) { b[4], b[5], b[6] = byte(frames.KindHello), 0, 1 },
		"cancel verb": func(b []byte) { b[4] = byte(frames.KindCancel) },
		"reply verb":  func(b []byte) { b[4] = byte(frames.KindReply) },
		"descriptors": func(b []byte) { b[4], b[7] = byte(frames.KindFile), 1 },
		"too many":    func(b []byte) { b[4], b[7] = byte(frames.KindRequest), 254 },
		"again":       func(b []byte) { b[4], b[6] = byte(frames.KindRequest), 1 },
	} {
		b := good.Append(nil)
		change(b)
		if _, err := frames.ParseHeader(b); !errors.Is(err, frames.ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	large := make([]byte, frames.HeaderSize+frames.MaxBody+1)
	if err := frames.Finish(large, 0); !errors.Is(err, frames.ErrFrame) {
		t.Errorf("too large a body: %v", err)
	}
}

// TestHello decodes greetings.
func TestHello(t *testing.T) {
	want := frames.Hello{Session: "3f", Calls: 9}
	body := frames.AppendHello(nil, want)
	if got, err := frames.ParseHello(body); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range [][]byte{nil, body[:4], body[:3], append([]byte{0, 0, 0, 0}, "id"...)} {
		if _, err := frames.ParseHello(bad); !errors.Is(err, frames.ErrFrame) {
			t.Errorf("% x: %v", bad, err)
		}
	}
}

// TestNoAllocation decodes the same call again, which needs no memory.
func TestNoAllocation(t *testing.T) {
	body := appended(t, calls()[1])
	var q adminapi.Call
	var names frames.Names
	var b []byte
	line := lines()[3]
	if n := testing.AllocsPerRun(100, func() {
		if frames.ParseCall(body, &q, &names) != nil {
			t.Fatal("it was decoded before")
		}
		b, _ = frames.AppendCall(b[:0], &q)
		b = frames.AppendLine(b, &line)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzCall decodes arbitrary bodies: an accepted one is encoded to the same bytes again.
func FuzzCall(f *testing.F) {
	for _, q := range calls() {
		f.Add(appended(f, q))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var q adminapi.Call
		if err := frames.ParseCall(body, &q, new(frames.Names)); err != nil {
			if !errors.Is(err, frames.ErrFrame) {
				t.Errorf("%v", err)
			}
			return
		}
		if again := appended(t, q); !bytes.Equal(again, body) {
			t.Errorf("% x is encoded as % x", body, again)
		}
	})
}

// FuzzAnswer decodes arbitrary bodies of the daemon: what is accepted is the same after it was
// encoded again.
func FuzzAnswer(f *testing.F) {
	var all []byte
	for _, l := range lines() {
		f.Add(frames.AppendLine(nil, &l))
		all = frames.AppendLine(all, &l)
	}
	f.Add(all)
	f.Add(frames.AppendFailure(nil, frames.Failure{Code: "io", Text: "x"}))
	f.Add(frames.AppendHello(nil, frames.Hello{Session: "s", Calls: 1}))
	f.Fuzz(func(t *testing.T, body []byte) {
		parse := func(b []byte) (got []adminapi.Line, err error) {
			err = frames.ParseLines(b, hetero.MaxKeys, nil, func(l adminapi.Line) error {
				if len(l.Blobs) == 0 {
					l.Blobs = nil
				}
				got = append(got, l)
				return nil
			})
			return got, err
		}
		if got, err := parse(body); err == nil {
			var b []byte
			for _, l := range got {
				b = frames.AppendLine(b, &l)
			}
			if again, err := parse(b); err != nil || !reflect.DeepEqual(got, again) {
				t.Errorf("%+v is read as %+v, %v", got, again, err)
			}
		}
		if _, err := frames.ParseFailure(body); err != nil && !errors.Is(err, frames.ErrFrame) {
			t.Errorf("%v", err)
		}
		if _, err := frames.ParseHello(body); err != nil && !errors.Is(err, frames.ErrFrame) {
			t.Errorf("%v", err)
		}
	})
}

// TestVerbsOfWirePage: docs/wire.md numbers each verb, so that clients can be written from that page alone.
func TestVerbsOfWirePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "wire.md"))
	if err != nil {
		t.Fatal(err)
	}
	requests := []string{
		frames.RequestRegister - 1: "register", frames.RequestBind - 1: "bind", frames.RequestExport - 1: "export",
		frames.RequestCollect - 1: "collect", frames.RequestVerify - 1: "verify", frames.RequestKeys - 1: "keys", frames.RequestWatch - 1: "watch",
	}
	var calls []string
	for _, v := range frames.Verbs() {
		calls = append(calls, string(v))
	}
	files := make([]string, frames.FileVerbs-1) // the page calls them otherwise than the metrics
	for what, verbs := range map[string][]string{"publish": calls, "register": requests, "open": files} {
		_, rows, _ := strings.Cut(string(page), "\n| 1 | "+what)
		rows, _, _ = strings.Cut("| 1 | "+what+rows, "\n\n")
		lines := strings.Split(rows, "\n")
		if len(lines) != len(verbs) {
			t.Errorf("the page has %d verbs from %q on, and not %d", len(lines), what, len(verbs))
			continue
		}
		for i, line := range lines {
			if want := fmt.Sprintf("| %d | %s", i+1, verbs[i]); !strings.HasPrefix(line, want) {
				t.Errorf("the page has %q, and not %q", line, want)
			}
		}
	}
}

// FuzzHeader decodes arbitrary bytes as a header: what is accepted is the same after it was encoded again.
func FuzzHeader(f *testing.F) {
	for _, h := range []frames.Header{
		{Kind: frames.KindCall, Verb: 7, ID: 1 << 63, Size: frames.MaxBody, Again: true},
		{Kind: frames.KindRequest, Verb: 3, ID: 2, Descriptors: frames.MaxDescriptors},
		{Kind: frames.KindMore, ID: 9},
		{Kind: frames.KindHello},
	} {
		f.Add(h.Append(nil))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frames.HeaderSize {
			return // callers read as many
		}
		h, err := frames.ParseHeader(b)
		switch {
		case err != nil && !errors.Is(err, frames.ErrFrame):
			t.Error(err)
		case err == nil && !bytes.Equal(h.Append(nil), b[:frames.HeaderSize]):
			t.Errorf("% x is encoded as % x", b[:frames.HeaderSize], h.Append(nil))
		case err == nil && (h.Size > frames.MaxBody || h.Descriptors > frames.MaxDescriptors):
			t.Errorf("accepted %+v", h)
		}
	})
}
