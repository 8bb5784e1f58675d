package fs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/objects"
)

// openEventsBy opens the stream for a user.
func (r *rig) openEventsBy(uid uint32) *file {
	r.t.Helper()
	h := header(uint64(eventsIno))
	h.Uid = uid
	var out fuse.OpenOut
	r.ok(r.Open(nil, &fuse.OpenIn{InHeader: h}, &out))
	if out.OpenFlags&(fuse.FOPEN_STREAM|fuse.FOPEN_DIRECT_IO) != fuse.FOPEN_STREAM|fuse.FOPEN_DIRECT_IO {
		r.t.Errorf("flags %x", out.OpenFlags)
	}
	return &file{r: r, ino: h.NodeId, fh: out.Fh}
}

// linesOf reads n lines of events in pieces.
func (f *file) linesOf(n, piece int) []objects.Event {
	f.r.t.Helper()
	var text []byte
	for bytes.Count(text, []byte("\n")) < n {
		p := f.readAt(piece, 0)
		if len(p) == 0 {
			f.r.t.Fatalf("the stream ends after %q", text)
		}
		text = append(text, p...)
	}
	var all []objects.Event
	for line := range strings.Lines(string(text)) {
		var e objects.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			f.r.t.Errorf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

func TestEventStream(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	small, large, stranger := r.openEventsBy(0), r.openEventsBy(0), r.openEventsBy(4711)
	want := []string{"a", "b", "c"}
	for i, name := range want {
		f := r.create(sim0, name)
		f.write(pattern(1000+i, byte(i)))
		f.release()
		if name == "b" {
			in := fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: header(f.ino), Valid: fuse.FATTR_MODE, Mode: 0o600}}
			r.ok(r.SetAttr(nil, &in, &fuse.AttrOut{}))
		}
		r.ok(r.rename(sim0, name, publishIno, name))
	}
	for piece, f := range map[int]*file{1: small, 65536: large} {
		for i, e := range f.linesOf(len(want), piece) {
			if e.Kind != objects.EventPublished || e.Key != want[i] || e.Size != uint64(1000+i) || e.Device != "sim0" {
				t.Errorf("in pieces of %d: event %d is %+v", piece, i, e)
			}
		}
	}
	if got := stranger.linesOf(2, 4096); got[0].Key != "a" || got[1].Key != "c" {
		t.Errorf("a stranger hears of %q and %q", got[0].Key, got[1].Key)
	}
	late := r.openEventsBy(0)
	h := header(publishIno)
	r.ok(r.Unlink(nil, &h, "a"))
	if e := late.linesOf(1, 4096)[0]; e.Kind != objects.EventWithdrawn || e.Key != "a" {
		t.Errorf("the late one hears %+v", e)
	}
	for _, f := range []*file{small, large, stranger, late} {
		f.release()
	}
	if n := r.streams.count(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// TestEventStreamWaits interrupts waiting readers, including one that waits for another reader
// of the same handle, and ends the stream.
func TestEventStreamWaits(t *testing.T) {
	r := newRig(t)
	f := r.openEventsBy(0)
	statuses := make(chan fuse.Status)
	cancels := []chan struct{}{make(chan struct{}), make(chan struct{})}
	for _, cancel := range cancels {
		go func() {
			_, status := f.tryReadAt(cancel, 100, 0)
			statuses <- status
		}()
	}
	for _, cancel := range cancels {
		close(cancel)
		r.want(<-statuses, syscall.EINTR)
	}
	// Another file is open, so the streams stay open.
	g := r.create(r.root("sim0"), "g")
	if r.endStreams() {
		t.Error("streams end beside an open file")
	}
	g.release()
	go func() {
		p, status := f.tryReadAt(nil, 100, 0)
		if len(p) > 0 {
			status = fuse.EINVAL
		}
		statuses <- status
	}()
	if !r.endStreams() {
		t.Error("streams don't end")
	}
	r.ok(<-statuses)
	if p := f.readAt(100, 0); len(p) != 0 {
		t.Errorf("behind the end: %q", p)
	}
	f.release()
	if r.endStreams() {
		t.Error("there are none to end")
	}
}

// TestEventStreamEndsWithTheStore reads after the store has closed the queue.
func TestEventStreamEndsWithTheStore(t *testing.T) {
	r := newRig(t)
	f := r.openEventsBy(0)
	h, ok := r.files.get(f.fh)
	if !ok {
		t.Fatal("no handle")
	}
	h.stream.queue.Close()
	if p := f.readAt(100, 0); len(p) != 0 {
		t.Errorf("read %q", p)
	}
	if _, err := h.stream.queue.Next(context.Background()); !errors.Is(err, objects.ErrClosed) {
		t.Errorf("the queue says %v", err)
	}
	f.release()
}

// TestEventStreamsAreBounded opens streams up to the bounds.
func TestEventStreamsAreBounded(t *testing.T) {
	r := newRig(t)
	open := func(uid uint32) fuse.Status {
		h := header(uint64(eventsIno))
		h.Uid = uid
		return r.Open(nil, &fuse.OpenIn{InHeader: h}, &fuse.OpenOut{})
	}
	const others = maxStreams / 2 / maxUserStreams
	for uid := range uint32(others) {
		for range maxUserStreams {
			r.ok(open(4711 + uid)) // regardless of the earlier users' streams
		}
		r.want(open(4711+uid), syscall.EMFILE)
	}
	r.want(open(4711+others), syscall.EMFILE)
	for range maxStreams / 2 {
		r.ok(open(0))
	}
	r.want(open(0), syscall.EMFILE)
	for i, want := range []uint64{others, 2} {
		if l := r.streams.limits()[i]; l.Refused != want {
			t.Errorf("%+v, want %d", l, want)
		}
	}
}
