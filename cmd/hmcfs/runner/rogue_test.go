package runner

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// rogue is a host that violates the protocol.
type rogue struct {
	from *bufio.Reader
	to   sender
}

// hear reads until a message of the given kind arrives.
func (r *rogue) hear(k kind) error {
	for {
		f, _, err := readFrame(r.from, nil)
		if err != nil || f.kind == k {
			return err
		}
	}
}

// reach follows the protocol up to a step.
func (r *rogue) reach(last kind) error {
	for _, step := range []struct {
		order, answer kind
		what          any
	}{
		{kindBrief, kindReady, addressBook{[]string{"127.0.0.1:7", "127.0.0.1:8"}}},
		{kindBook, kindLoaded, nil},
		{kindStart, kindBeat, nil},
		{kindNow, kindEnded, Ending{Rank: 2}},
		{kindVerify, kindVerdict, Verdict{Compared: 1}},
		{kindSave, kindBeat, nil},
	} {
		if step.order == kindNow {
			// Both ranks have ended well.
			if err := r.to.send(kindEnded, Ending{Rank: 3}); err != nil {
				return err
			}
		} else if err := r.hear(step.order); err != nil {
			return err
		}
		if step.order == last {
			return nil
		}
		if step.answer == kindVerdict {
			if err := r.to.send(kindVerified, nil); err != nil {
				return err
			}
			continue
		}
		if err := r.to.send(step.answer, step.what); err != nil {
			return err
		}
	}
	return nil
}

// tricks returns the violations that follow.
func tricks() map[string]func(r *rogue) error {
	raw := func(r *rogue, p []byte) error {
		r.to.mu.Lock()
		defer r.to.mu.Unlock()
		_, err := r.to.to.Write(p)
		return err
	}
	at := func(last kind, what func(r *rogue) error) func(r *rogue) error {
		return func(r *rogue) error {
			if err := r.reach(last); err != nil {
				return err
			}
			return what(r)
		}
	}
	say := func(last, k kind, v any) func(r *rogue) error {
		return at(last, func(r *rogue) error { return r.to.send(k, v) })
	}
	data := func(last kind, head, p []byte) func(r *rogue) error {
		return at(last, func(r *rogue) error { return r.to.sendPiece(kindData, head, p) })
	}
	return map[string]func(r *rogue) error{
		"addresses that are none":        say(kindBrief, kindReady, addressBook{[]string{"127.0.0.1:7", "$(reboot):1"}}),
		"too many addresses":             say(kindBrief, kindReady, addressBook{[]string{"127.0.0.1:7", "127.0.0.1:8", "127.0.0.1:9"}}),
		"a field that nobody knows":      at(kindBrief, func(r *rogue) error { return raw(r, appendFrame(nil, kindReady, []byte(`{"Addresses":null,"X":1}`))) }),
		"a step before its time":         say(kindBrief, kindLoaded, nil),
		"a message that nobody knows":    say(kindBook, 200, nil),
		"an order":                       say(kindBook, kindStart, nil),
		"a message without end":          at(kindBook, func(r *rogue) error { return raw(r, binary.BigEndian.AppendUint32([]byte{byte(kindFault)}, 1<<31)) }),
		"the output of another's rank":   at(kindStart, func(r *rogue) error { return r.to.sendPiece(kindOutput, outputHead(0, 0), []byte("me\n")) }),
		"a third stream":                 at(kindStart, func(r *rogue) error { return r.to.sendPiece(kindOutput, outputHead(2, 2), []byte("me\n")) }),
		"the end of another's rank":      say(kindStart, kindEnded, Ending{Rank: 1}),
		"an end twice":                   at(kindNow, func(r *rogue) error { return r.to.send(kindEnded, Ending{Rank: 3}) }),
		"a rank of another at a barrier": say(kindStart, kindArrive, numberedArrival{1, arrival{Rank: 0}}),
		"a crowd at barriers": at(kindStart, func(r *rogue) error {
			for i := range uint64(2 * mostArrivals) {
				if err := r.to.send(kindArrive, numberedArrival{i, arrival{Rank: 2, Name: fmt.Sprint(i)}}); err != nil {
					return err
				}
			}
			return nil
		}),
		"buffers that nobody asked for":  data(kindStart, dataHead(2, 0), []byte("1234")),
		"a buffer of another's rank":     data(kindSave, dataHead(0, 0), []byte("1234")),
		"a buffer that is not there":     data(kindSave, dataHead(2, 7), []byte("1234")),
		"more than a buffer has":         data(kindSave, dataHead(2, 0), []byte("12345")),
		"less than a buffer has":         say(kindSave, kindSaved, nil),
		"differences that nobody counts": say(kindVerify, kindVerdict, Verdict{Compared: 1, Wrong: 1}),
		"more differences than there are": say(kindVerify, kindVerdict, Verdict{
			Compared: 1 << 63, Wrong: 1 << 63, First: slices.Repeat([]Mismatch{{Rank: 2, Buffer: "x"}}, shown),
		}),
		"differences elsewhere": say(kindVerify, kindVerdict, Verdict{
			Compared: 1, Wrong: 1, First: []Mismatch{{Rank: 2, Buffer: "../../x"}},
		}),
		"the end of the job": say(kindStart, kindDone, done{}),
	}
}

// hostile is a host that plays one of the tricks, and then reads until the end of its
// input.
func hostile(trick string) error {
	r := &rogue{from: bufio.NewReader(os.Stdin), to: sender{to: os.Stdout}}
	if _, err := os.Stdout.WriteString(greeting + version + "\n"); err != nil {
		return err
	}
	err := tricks()[trick](r)
	_, _ = io.Copy(io.Discard, r.from)
	return err
}

// TestHostileHosts: a host that violates the protocol is lost, and can write only to files
// of its own ranks, within their sizes.
func TestHostileHosts(t *testing.T) {
	for name := range tricks() {
		t.Run(name, func(t *testing.T) {
			w := newRemote(t, []string{Here, "b"}, "true")
			w.options.RemoteCommand = []string{self(), asHostile, name}
			if strings.Contains(name, "barriers") {
				w.options.Program = []string{"sleep", "1000"} // ranks that wait for an ended rank are released
			}
			w.options.LogDir, w.options.Save = filepath.Join(w.dir, "out"), filepath.Join(w.dir, "out")
			c := &Config{
				Buffers: []Buffer{{Name: "x", DType: "int8", Count: 4}}, Outputs: []string{"x"},
				Golden: &Source{Values: map[string]string{"x": "0"}}, Verify: "all",
			}
			_, err := w.run(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), "host b is lost: ") || !strings.Contains(err.Error(), ErrProtocol.Error()) {
				t.Errorf("%v, %s", err, w.errs.String())
			}
			if strings.Contains(w.out.String(), "me") {
				t.Errorf("%q", w.out.String())
			}
			err = filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				in, err := filepath.Rel(w.options.Save, path)
				st := must(d.Info())
				if strings.HasPrefix(in, "..") || st.Size() > 4 {
					t.Errorf("%s has %d bytes", path, st.Size())
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNoiseWithoutEnd: an agent that never stops writing noise is not accepted as a host.
func TestNoiseWithoutEnd(t *testing.T) {
	w := newRemote(t, []string{Here, "b"}, "true")
	w.options.Agent = []string{"sh", "-c", "exec yes \x1b[31mhello", "agent"}
	begun := kit.Context(t, time.Minute)
	_, err := w.run(begun, nil)
	if err == nil || !strings.Contains(err.Error(), "host b can't be reached: no answer from hmcfs: not understood; it says ") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%v", err)
	}
}

// bench is a runner with one host, which does not exist: the test supplies its messages.
func bench(t testing.TB, dir string) (*watch, *host) {
	t.Helper()
	p, err := NewPlan(Options{
		Ranks: 4, Program: []string{"true"}, Save: dir, Out: io.Discard, Errors: io.Discard,
		Hosts: []Place{{Name: Here, Slots: 2}, {Name: "b", Slots: 2}}, Agent: []string{"a"}, RemoteCommand: []string{"r"},
	}, &Config{Buffers: []Buffer{{Name: "x", DType: "int8", Count: 4}}, Outputs: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWatch(t.Context(), p, nil)
	w.events = make(chan event, 1)
	to := &lines{out: io.Discard}
	h := &host{
		part: p.parts()[1], plan: p, link: &link{agent: &agent{}, to: io.Discard}, out: make(chan []byte, mostQueued), events: w.events,
		over: w.over, ended: make([]bool, 2), arrivals: map[uint64]arrival{}, saved: &saver{plan: p, rank: 2, last: 3},
	}
	for range 4 {
		h.streams = append(h.streams, &stream{to: to})
	}
	w.hosts = []*host{h}
	w.started = true
	h.saved.asked.Store(true)
	for _, k := range []kind{kindReady, kindLoaded, kindEnded, kindVerified, kindSaved} {
		h.asked[k] = true
	}
	return w, h
}

// TestHostsAreToldTheSilenceLimit has a host after this one, which has no limit, and needs no
// folder: the limit of one host was once that of all hosts after it.
func TestHostsAreToldTheSilenceLimit(t *testing.T) {
	w, h := bench(t, t.TempDir())
	w.plan.WorkDir = "/work"
	local := &host{part: w.plan.parts()[0], plan: w.plan}
	w.hosts = []*host{local, h}
	all := brief{Silence: w.plan.silence()}
	if b := w.briefOf(all, 0); b.Silence != 0 || b.WorkDir != nil || !slices.Equal(b.Peers, []string{"b"}) {
		t.Errorf("this host: %+v", b)
	}
	if b := w.briefOf(all, 1); b.Silence != DefaultSilence || string(b.WorkDir) != "/work" || len(b.Peers) != 0 || b.Host != 1 {
		t.Errorf("the other host: %+v", b)
	}
}

// TestSaveAfterAFailure: saving buffers has a timeout of its own, apart from the grace
// period of ranks, and hosts that send nothing are given up.
func TestSaveAfterAFailure(t *testing.T) {
	w, h := bench(t, t.TempDir())
	w.plan.Silence = 50 * time.Millisecond
	w.cause = ErrTimeout
	over := make(chan time.Time, 1)
	over <- time.Now()
	w.kill = over
	h.saved.moved.Store(true) // once
	if err := w.save(); err != nil {
		t.Error(err)
	}
	if h.lost == nil || !strings.Contains(h.lost.Error(), "host b does not answer") {
		t.Errorf("%v", h.lost)
	}
	close(h.out)
	for p := range h.out {
		if kind(p[0]) != kindSave {
			t.Errorf("it was told %d", p[0])
		}
	}
}

// FuzzHost feeds arbitrary messages of a host to the runner, which must not crash, nor
// accept more than a host may send.
func FuzzHost(f *testing.F) {
	var all []byte
	all = append(all, must(encode(kindReady, addressBook{[]string{"127.0.0.1:7", "127.0.0.1:8"}}))...)
	all = append(all, must(encode(kindLoaded, nil))...)
	all = appendFrame(all, kindOutput, outputHead(2, 1), []byte("hello\nyou"))
	all = append(all, must(encode(kindArrive, numberedArrival{1, arrival{Rank: 2, Name: "n"}}))...)
	all = append(all, must(encode(kindLeave, departure{1}))...)
	all = append(all, must(encode(kindEnded, Ending{Rank: 2, Code: -1, Signal: "SIGKILL"}))...)
	all = append(all, must(encode(kindVerdict, Verdict{Compared: 4, Wrong: 1, First: []Mismatch{{Rank: 2, Buffer: "x", Got: "1", Want: "2"}}}))...)
	all = appendFrame(all, kindData, dataHead(2, 0), []byte("1234"))
	all = appendFrame(all, kindData, dataHead(3, 0), []byte("12"))
	all = append(all, must(encode(kindSaved, nil))...)
	all = append(all, must(encode(kindFault, fault{"size", "no"}))...)
	all = append(all, must(encode(kindDone, done{}))...)
	f.Add([]byte("Welcome\n" + greeting + version + "\n" + string(all)))
	f.Add(append([]byte(greeting+version+"\n"), all[:len(all)/2]...))
	f.Add([]byte(greeting + "2\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		dir := t.TempDir()
		w, h := bench(t, dir)
		from := bufio.NewReader(bytes.NewReader(p))
		_, err := awaitGreeting(from)
		for room := []byte(nil); err == nil && h.lost == nil; {
			var f frame
			if f, room, err = readFrame(from, room); err != nil {
				break
			}
			if err = h.take(f); err != nil {
				break
			}
			select {
			case e := <-w.events:
				err = w.take(e)
			default:
			}
		}
		w.barriers.close()
		h.saved.finish()
		if len(h.verdicts) > 3 || len(w.report.Endings) > 2 {
			t.Errorf("%d verdicts, %d ends", len(h.verdicts), len(w.report.Endings))
		}
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				in := must(filepath.Rel(dir, path))
				if st := must(d.Info()); in != "rank_2/x.bin" && in != "rank_3/x.bin" || st.Size() > 4 {
					t.Errorf("%s has %d bytes", in, st.Size())
				}
			}
			return nil
		})
	})
}

// FuzzBrief feeds arbitrary messages of a runner to a host, up to the start of programs.
func FuzzBrief(f *testing.F) {
	p := must(NewPlan(Options{Ranks: 4, Program: []string{"true"}}, &Config{Buffers: []Buffer{{Name: "x", DType: "int8", Count: 4}}}))
	f.Add(must(encode(kindBrief, &brief{Job: "j", Config: p.sent(), Program: wordsOf(p.Program), Count: 4, Hosts: 1}))[frameHead:])
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := decode[brief](frame{kindBrief, text})
		if err != nil {
			return
		}
		plan, err := b.plan(&HostOptions{})
		if err == nil && (plan.Ranks > MaxRanks || b.First+b.Count > plan.Ranks) {
			t.Errorf("%+v", b)
		}
	})
}
