package admin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// newSharingRig returns a server with keys and a sharer, whose peers are another user.
func newSharingRig(t testing.TB) (*keyedRig, *sharer) {
	t.Helper()
	behind := &sharer{memory: kit.Memfd(t, 7, memorySize)}
	return newKeyedRigWith(t, owner+1, func(o *admin.Options) { o.Sharer = behind }), behind
}

// request sends a request that announces descriptors.
func (f *framesByHand) request(verb frames.RequestVerb, id uint64, text string, announced int) {
	f.t.Helper()
	b := append(frames.BeginRequest(nil, verb, announced, id), text...)
	fatal(f.t, frames.Finish(b, 0))
	f.write(b)
}

// failed reads the failure of a request.
func (f *framesByHand) failed(id uint64) frames.Failure {
	f.t.Helper()
	h, body := f.next()
	fault, err := frames.ParseFailure(body)
	if h.Kind != frames.KindFailure || h.ID != id || err != nil {
		f.t.Errorf("request %d is answered with %+v, %q, %v", id, h, body, err)
	}
	return fault
}

// replied reads an answer of a kind, whose descriptors are closed.
func (f *framesByHand) replied(kind frames.Kind, id uint64, into any) (descriptors int) {
	f.t.Helper()
	h, body := f.next()
	if h.Kind != kind || h.ID != id {
		f.t.Fatalf("request %d is answered with %+v, %q", id, h, body)
	}
	if h.Descriptors > 0 {
		files, err := f.channel.Receive(id, int(h.Descriptors), nil, 0)
		fatal(f.t, err)
		adminapi.CloseAll(files)
	}
	if into != nil {
		fatal(f.t, json.Unmarshal(body, into))
	}
	return int(h.Descriptors)
}

// TestWrongRequests makes requests that no proper client makes, with descriptors, of which none may be left. The session goes on.
func TestWrongRequests(t *testing.T) {
	r, behind := newSharingRig(t)
	f := openFrames(t, r.socket)
	memory := kit.Memfd(t, 3, memorySize)
	const good = `{"device":"sim0","memory":{"family":"sim","size":4,"pieces":[{"kind":"memfd","fd":0,"size":4}]}}`
	for name, c := range map[string]struct {
		verb            frames.RequestVerb
		text            string
		sent, announced int
		want            string
	}{
		"no text":              {frames.RequestRegister, "", 0, 0, "invalid"},
		"no object":            {frames.RequestRegister, "[]", 1, 1, "invalid"},
		"two objects":          {frames.RequestRegister, good + good, 1, 1, "invalid"},
		"unknown field":        {frames.RequestRegister, `{"x":1}`, 1, 1, "invalid"},
		"none sent":            {frames.RequestRegister, good, 0, 1, "none were sent"},
		"fewer sent":           {frames.RequestRegister, good, 1, 2, "2 descriptors announced, 1 received"},
		"more sent":            {frames.RequestRegister, good, 2, 1, "1 descriptors announced, 2 received"},
		"a list with some":     {frames.RequestKeys, "{}", 1, 1, "1 descriptors too many"},
		"a stream with some":   {frames.RequestWatch, "{}", 1, 1, "1 descriptors too many"},
		"a stream of what":     {frames.RequestWatch, `{"prefix":""}`, 0, 0, "invalid"},
		"a list by number":     {frames.RequestKeys, `{"ino":1}`, 0, 0, "invalid"},
		"no such request":      {200, "{}", 0, 0, "unsupported"},
		"request 0":            {0, "{}", 0, 0, "unsupported"},
		"what is not here":     {frames.RequestCollect, "{}", 0, 0, "unknown request"},
		"an export of nothing": {frames.RequestExport, "{}", 0, 0, "too few descriptors"},
		"two files":            {frames.RequestExport, "{}", 2, 2, "1 descriptors too many"},
		"held twice":           {frames.RequestExport, `{"hold":true,"holder":7}`, 1, 1, "not by both"},
		"too long":             {frames.RequestExport, strings.Repeat(" ", frames.MaxRequest+1), 0, 0, "at most 1048576"},
		"of no one":            {frames.RequestBind, `{"memory":{"pieces":[]}}`, 2, 2, "no piece refers to descriptor 0"},
	} {
		id := uint64(len(name))<<32 + uint64(c.verb)
		if c.sent > 0 {
			fatal(t, f.channel.Send(id, []*os.File{memory, memory}[:c.sent]))
		}
		f.request(c.verb, id, c.text, c.announced)
		if got := f.failed(id); !strings.Contains(got.Code+": "+got.Text, c.want) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
	// Descriptors that no request announces are passed over, and so is a request for more that nobody waits for.
	for id := range uint64(20) {
		fatal(t, f.channel.Send(1000+id, []*os.File{memory}))
	}
	f.write(frames.Begin(nil, frames.KindMore, 0, 77))
	fatal(t, f.channel.Send(7, []*os.File{memory}))
	f.request(frames.RequestRegister, 7, good, 1)
	var done adminapi.Registered
	f.replied(frames.KindReply, 7, &done)
	if _, content := r.last().registered(); done.Memory == 0 || kit.DiffAt(content, 3, 0) >= 0 {
		t.Errorf("registered %+v", done)
	}
	if behind.exports() != 0 || behind.last().bind.Memory.Family != "" {
		t.Errorf("%d exports, %+v", behind.exports(), behind.last())
	}
	fatal(t, f.channel.Send(8, []*os.File{memory})) // and nothing more
}

// TestRefusedRequestsWithDescriptors has more requests refused, with a descriptor each, than messages of others are passed over. The
// session goes on, and holds none of these.
func TestRefusedRequestsWithDescriptors(t *testing.T) {
	r, _ := newSharingRig(t)
	f := openFrames(t, r.socket)
	memory := kit.Memfd(t, 3, memorySize)
	long := strings.Repeat(" ", frames.MaxRequest+1)
	for id := range uint64(100) {
		fatal(t, f.channel.Send(1000+id, []*os.File{memory}))
		f.request(frames.RequestRegister, 1000+id, long, 1)
		f.failed(1000 + id)
	}
	fatal(t, f.channel.Send(7, []*os.File{memory}))
	f.request(frames.RequestRegister, 7, `{"device":"sim0","memory":{"family":"sim","size":4,"pieces":[{"kind":"memfd","fd":0,"size":4}]}}`, 1)
	var done adminapi.Registered
	f.replied(frames.KindReply, 7, &done)
	if done.Memory == 0 {
		t.Errorf("registered %+v", done)
	}
}

// TestFailureNamesTheFile has requests fail whose file was given by its path: the error names that, and not only a number.
func TestFailureNamesTheFile(t *testing.T) {
	r, behind := newSharingRig(t)
	f := openFrames(t, r.socket)
	behind.fail(fmt.Errorf("object 1026 is published: %w", objects.ErrBusy))
	for id, text := range []string{`{"path":"sim0/a","kind":"memfd"}`, `{"path":"sim0/a","end":true}`} {
		f.request(frames.RequestExport, uint64(id), text, 0)
		if got := f.failed(uint64(id)); got.Code != adminapi.CodeBusy || !strings.HasPrefix(got.Text, "sim0/a: ") {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// TestExportsAreHeld holds exports by requests: each until it is cancelled, or the session ends.
func TestExportsAreHeld(t *testing.T) {
	r, behind := newSharingRig(t)
	f := openFrames(t, r.socket)
	file := kit.Memfd(t, 3, 1)
	for id := uint64(1); id <= 3; id++ {
		fatal(t, f.channel.Send(id, []*os.File{file}))
		f.request(frames.RequestExport, id, `{"hold":true}`, 1)
		if n := f.replied(frames.KindPart, id, nil); n != 1 {
			t.Errorf("%d descriptors", n)
		}
	}
	f.write(cancelOf(2))
	f.replied(frames.KindLast, 2, nil)
	if n := behind.exports(); n != 2 {
		t.Errorf("%d exports are held after the end of one of three", n)
	}
	f.write(cancelOf(2)) // does nothing
	fatal(t, f.conn.CloseWrite())
	for range 2 {
		if h, _ := f.next(); h.Kind != frames.KindLast {
			t.Errorf("%+v", h)
		}
	}
	if h, _ := f.next(); h.Kind != frames.KindEnded || behind.exports() != 0 {
		t.Errorf("%+v, and %d exports", h, behind.exports())
	}
}

// TestHeldExportsAreBounded holds as many as a user may have calls in progress. Those of a client that dies end.
func TestHeldExportsAreBounded(t *testing.T) {
	r, behind := newSharingRig(t)
	f := openFrames(t, r.socket)
	file := kit.Memfd(t, 3, 1)
	held := 0
	for id := uint64(1); ; id++ {
		fatal(t, f.channel.Send(id, []*os.File{file}))
		f.request(frames.RequestExport, id, `{"hold":true}`, 1)
		h, body := f.next()
		if h.Kind == frames.KindFailure {
			if fault, err := frames.ParseFailure(body); err != nil || fault.Code != "busy" {
				t.Errorf("%+v, %v", fault, err)
			}
			break
		}
		held++
	}
	if held != f.most || behind.exports() != held {
		t.Errorf("%d are held, %d exports, at most %d calls", held, behind.exports(), f.most)
	}
	fatal(t, f.conn.Close())
	kit.Eventually(t, sessionPatience, func() bool { return behind.exports() == 0 })
}

// TestWatchIsNotRead has a client that asks for no more events: other calls are answered, and what is sent is bounded.
func TestWatchIsNotRead(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	f := openFrames(t, r.socket)
	f.request(frames.RequestWatch, 1, "{}", 0)
	var some adminapi.EventsAnswer
	f.replied(frames.KindPart, 1, &some)
	if len(some.Events) != 0 {
		t.Errorf("it begins with %+v", some)
	}
	for seq := range uint64(cap(r.queue)) {
		r.queue <- objects.Event{Seq: seq}
	}
	for id := uint64(2); id < 20; id++ {
		f.write(callOf(t, adminapi.VerbExist, id, adminapi.Call{Keys: []string{"a"}}))
		if h, _ := f.next(); h.Kind != frames.KindLast || h.ID != id {
			t.Fatalf("answered %+v", h)
		}
	}
	var got []adminapi.Event
	for len(got) < cap(r.queue) {
		f.write(frames.Begin(nil, frames.KindMore, 0, 1))
		f.replied(frames.KindPart, 1, &some)
		if len(some.Events) == 0 {
			t.Fatal("an answer without events")
		}
		got = append(got, some.Events...)
	}
	for i, e := range got {
		if e.Seq != uint64(i) {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
	// However often it asks, it gets each event once.
	for range 100 {
		f.write(frames.Begin(nil, frames.KindMore, 0, 1))
	}
	f.write(cancelOf(1))
	f.replied(frames.KindLast, 1, nil)
	for id := uint64(1); id <= 16; id++ {
		f.request(frames.RequestWatch, id, "{}", 0)
		f.replied(frames.KindPart, id, nil)
	}
	f.request(frames.RequestWatch, 17, "{}", 0)
	if got := f.failed(17); got.Code != "busy" {
		t.Errorf("one more than a user may have: %+v", got)
	}
}

// TestListHasPages lists more keys than a page has.
func TestListHasPages(t *testing.T) {
	r := newKeyedRig(t, owner+1)
	var want []adminapi.Key
	for i := range 20_000 {
		want = append(want, adminapi.Key{Key: fmt.Sprintf("k-%06d", i), Size: 1})
	}
	r.list(want, nil)
	keys, err := client.New(r.socket).Keys(t.Context(), "k-", false)
	if err != nil || len(keys) != len(want) {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for i := range keys {
		if keys[i].Key != want[i].Key {
			t.Fatalf("key %d is %s", i, keys[i].Key)
		}
	}
	f := openFrames(t, r.socket)
	f.request(frames.RequestKeys, 1, `{"prefix":"k-","after":"k-019990"}`, 0)
	var page adminapi.KeysAnswer
	f.replied(frames.KindReply, 1, &page)
	if len(page.Keys) != 9 || page.More || page.Keys[0].Key != "k-019991" {
		t.Errorf("%d keys, more %t", len(page.Keys), page.More)
	}
	f.request(frames.RequestKeys, 2, `{}`, 0)
	page = adminapi.KeysAnswer{}
	f.replied(frames.KindReply, 2, &page)
	if n := len(page.Keys); n == 0 || n > 3000 || !page.More {
		t.Errorf("%d keys, more %t", n, page.More)
	}
}

// FuzzRequest makes any request with any number of descriptors: it is answered, and the session goes on.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		`{"device":"sim0","memory":{"family":"sim","size":8,"pieces":[{"kind":"memfd","fd":0,"size":8}]}}`, `{"file":true}`,
		`{"hold":true}`, `{"path":"sim0/a","hold":true}`, `{"end":true}`, `{"text":true,"holder":1}`, `{"memory":{"pieces":[]}}`,
		`{"prefix":"a","after":"b","published":true}`, `{}`, `{"files":[{},null]}`, `{"sources":[{}],"targets":[null]}`,
	} {
		for verb := frames.RequestRegister; verb <= frames.RequestWatch; verb++ {
			f.Add(uint8(verb), []byte(text), uint8(1), uint8(1))
		}
	}
	r, _ := newSharingRig(f)
	file := kit.Memfd(f, 3, memorySize)
	f.Fuzz(func(t *testing.T, verb uint8, text []byte, sent, announced uint8) {
		h := openFrames(t, r.socket)
		sent, announced = sent%4, announced%4
		if sent > 0 {
			fatal(t, h.channel.Send(1, []*os.File{file, file, file}[:sent]))
		}
		h.request(frames.RequestVerb(verb), 1, string(text), int(announced))
		head, _ := h.next()
		if head.Kind != frames.KindReply && head.Kind != frames.KindPart && head.Kind != frames.KindFailure || head.ID != 1 {
			t.Errorf("%d %q is answered with %+v", verb, text, head)
		}
		h.write(callOf(t, adminapi.VerbExist, 2, adminapi.Call{Keys: []string{"a"}}))
		if head, _ = h.next(); head.Kind != frames.KindLast || head.ID != 2 {
			t.Errorf("behind %d %q: %+v", verb, text, head)
		}
	})
}
