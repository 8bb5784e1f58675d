package side

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// send writes bytes with some descriptors, regardless of any rule.
func send(t *testing.T, c *net.UnixConn, p []byte, n int) {
	t.Helper()
	var oob []byte
	if n > 0 {
		f := kit.Memfd(t, 1, 4096)
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(p, oob, nil); err != nil {
		t.Fatal(err)
	}
}

// offer returns an offer of key 1.
func offer(files uint8) []byte {
	o := wire.Offer{Descriptor: wire.Descriptor{Key: 1, Size: 4096, Rights: wire.Readable}, Files: files, Blob: []byte("blob")}
	return o.Append(nil)
}

// TestHostile makes a peer break each rule: the side connection ends, and nothing
// is left of it.
func TestHostile(t *testing.T) {
	decline := wire.Decline{Key: 9, Reason: "no"}
	long := offer(1)
	binary.LittleEndian.PutUint32(long[4:], 0xffffffff)
	for name, tc := range map[string]struct {
		frames []byte
		files  int
		want   error
	}{
		"nonsense":                 {frames: kit.Bytes(1, 0, 100), want: wire.ErrFrame},
		"another version":          {frames: []byte{49, wire.Version + 1, 0, 0, 24, 0, 0, 0}, want: wire.ErrVersion},
		"4 GiB":                    {frames: long, files: 1, want: wire.ErrFrame},
		"cut off":                  {frames: offer(1)[:20], files: 1, want: io.ErrUnexpectedEOF},
		"a second START":           {frames: (&wire.Start{}).Append(nil), want: wire.ErrFrame},
		"a PUT":                    {frames: wire.AppendTag(nil, 1), want: wire.ErrFrame},
		"more descriptors":         {frames: offer(1), files: 2, want: ErrFiles},
		"fewer descriptors":        {frames: offer(2), files: 1, want: ErrFiles},
		"none at all":              {frames: offer(1), want: ErrFiles},
		"more than a frame has":    {frames: offer(8), files: 9, want: ErrFiles},
		"hundreds":                 {frames: offer(1), files: 253, want: ErrFiles},
		"descriptors with nothing": {frames: wire.AppendKey(nil, wire.KindWithdraw, 1), files: 1, want: ErrFiles},
		"offers that are declined": {frames: append(offer(0), offer(0)...), want: nil},
		"an answer unasked":        {frames: wire.AppendKey(nil, wire.KindAccept, 9), want: ErrProtocol},
		"a refusal unasked":        {frames: decline.Append(nil), want: ErrProtocol},
		"withdrawn unasked":        {frames: wire.AppendKey(nil, wire.KindWithdrawn, 9), want: ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			near, far := pair(t)
			s := start(t, near, patience)
			send(t, far, tc.frames, tc.files)
			if tc.want == nil || errors.Is(tc.want, io.ErrUnexpectedEOF) {
				if err := far.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			<-s.Done()
			if tc.want != nil && !errors.Is(s.Err(), tc.want) {
				t.Errorf("ended because %v, want %v", s.Err(), tc.want)
			}
		})
	}
}

// TestSameKeyTwice offers a key whose window is open.
func TestSameKeyTwice(t *testing.T) {
	kit.Check(t)
	near, far := pair(t)
	s := start(t, near, patience)
	send(t, far, offer(1), 1)
	send(t, far, offer(1), 1)
	<-s.Done()
	if !errors.Is(s.Err(), ErrProtocol) {
		t.Errorf("ended because %v", s.Err())
	}
}

// TestAnswersTwice answers an offer of ours twice, and closes a window that was
// not withdrawn.
func TestAnswersTwice(t *testing.T) {
	for name, again := range map[string]wire.Kind{"accepted": wire.KindAccept, "closed": wire.KindWithdrawn} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			near, far := pair(t)
			s := start(t, near, patience)
			memory := s.buffer(t, 4096, 1)
			send(t, far, wire.AppendKey(wire.AppendKey(nil, wire.KindAccept, 3), again, 3), 0)
			err := s.Share(within(t), wire.Descriptor{Key: 3, Size: 4096, Rights: both}, memory)
			<-s.Done()
			if !errors.Is(s.Err(), ErrProtocol) {
				t.Errorf("ended because %v; %v", s.Err(), err)
			}
		})
	}
}

// TestManyOffers offers more than may be open at once: the rest is declined.
func TestManyOffers(t *testing.T) {
	kit.Check(t)
	near, far := pair(t)
	s := start(t, near, patience)
	o := wire.Offer{Descriptor: wire.Descriptor{Size: 1, Rights: both}, Blob: []byte("no file")}
	go func() {
		for key := range wire.Key(MaxWindows + 100) {
			o.Key = key + 1
			if _, err := far.Write(o.Append(nil)); err != nil {
				return
			}
		}
	}()
	r := newReader(far)
	for i := range MaxWindows + 100 {
		want := wire.KindAccept
		if i >= MaxWindows {
			want = wire.KindDecline
		}
		if f, err := r.next(); err != nil || f.kind != want {
			t.Fatal(i, f.kind, err)
		}
	}
	if s.Windows() != MaxWindows || s.Err() != nil {
		t.Errorf("%d windows, %v", s.Windows(), s.Err())
	}
}

// TestNobodyReads makes a peer send requests and not read the answers.
func TestNobodyReads(t *testing.T) {
	kit.Check(t)
	near, far := pair(t)
	s := start(t, near, 200*time.Millisecond)
	for key := wire.Key(1); ; key++ {
		if _, err := far.Write(wire.AppendKey(nil, wire.KindWithdraw, key)); err != nil {
			break
		}
	}
	<-s.Done()
	if !errors.Is(s.Err(), ErrProtocol) && !os.IsTimeout(s.Err()) && !errors.Is(s.Err(), os.ErrDeadlineExceeded) {
		t.Errorf("ended because %v", s.Err())
	}
}

// TestSilentPeer offers memory to a peer that does not answer.
func TestSilentPeer(t *testing.T) {
	kit.Check(t)
	near, _ := pair(t)
	s := start(t, near, 100*time.Millisecond)
	memory := s.buffer(t, 4096, 1)
	d := wire.Descriptor{Key: 3, Size: 4096, Rights: both}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Share(ended, d, memory); !errors.Is(err, context.Canceled) {
		t.Errorf("by the context: %v", err)
	}
	d.Key++
	if err := s.Share(within(t), d, memory); !errors.Is(err, ErrStalled) {
		t.Errorf("by the timeout: %v", err)
	}
}

// TestWindowThatStays offers memory to a peer that answers, but does not close
// its window.
func TestWindowThatStays(t *testing.T) {
	kit.Check(t)
	near, far := pair(t)
	s := start(t, near, 100*time.Millisecond)
	memory := s.buffer(t, 4096, 1)
	d := wire.Descriptor{Key: 4, Size: 4096, Rights: both}
	send(t, far, wire.AppendKey(nil, wire.KindAccept, d.Key), 0)
	// The answer may arrive before the question, which also ends the connection.
	if err := s.Share(within(t), d, memory); err == nil {
		if err = s.Withdraw(within(t), d.Key); err != nil {
			t.Error(err)
		}
		<-s.Done()
		if !errors.Is(s.Err(), ErrStalled) {
			t.Errorf("a window that is not closed: %v", s.Err())
		}
	}
}

// starter is a starter that offers some files.
type starter struct {
	offer  window.Offer
	got    window.Offer
	closed bool
}

func (m *starter) Start() window.Offer { return m.offer }
func (m *starter) Close()              { m.closed = true }
func (m *starter) Handshake(o window.Offer) (window.Provider, error) {
	m.got = o
	closeFiles(o.Files)
	return newFiles(), nil
}

func TestMeet(t *testing.T) {
	kit.Check(t)
	near, far := pair(t)
	f := kit.Memfd(t, 1, 100)
	a, b := &starter{offer: window.Offer{Blob: []byte("a"), Files: []*os.File{f, f}}}, &starter{offer: window.Offer{Blob: []byte("b")}}
	ended := make(chan error, 1)
	go func() {
		_, err := Handshake(t.Context(), near, a, patience)
		ended <- err
	}()
	if _, err := Handshake(t.Context(), far, b, patience); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if string(a.got.Blob) != "b" || string(b.got.Blob) != "a" || len(a.got.Files) != 0 || len(b.got.Files) != 2 {
		t.Errorf("met %+v and %+v", a.got, b.got)
	}
}

func TestMeetHostile(t *testing.T) {
	start := (&wire.Start{Files: 2, Blob: []byte("x")}).Append(nil)
	for name, tc := range map[string]struct {
		frame []byte
		files int
		want  error
	}{
		"nothing":           {want: os.ErrDeadlineExceeded},
		"another frame":     {frame: offer(1), files: 1, want: wire.ErrFrame},
		"more descriptors":  {frame: start, files: 3, want: ErrFiles},
		"fewer descriptors": {frame: start, files: 1, want: ErrFiles},
		"hundreds":          {frame: start, files: 253, want: ErrFiles},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			near, far := pair(t)
			if tc.frame != nil {
				send(t, far, tc.frame, tc.files)
			}
			m := &starter{}
			limit := patience
			if tc.frame == nil {
				limit = 50 * time.Millisecond
			}
			if _, err := Handshake(t.Context(), near, m, limit); !errors.Is(err, tc.want) || !m.closed {
				t.Errorf("%v, closed %v", err, m.closed)
			}
		})
	}
	near, _ := pair(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Handshake(ended, near, &starter{}, patience); !errors.Is(err, context.Canceled) {
		t.Errorf("by the context: %v", err)
	}
}

// FuzzDispatch passes arbitrary frames to the side connection.
func FuzzDispatch(f *testing.F) {
	f.Add(offer(0))
	f.Add(wire.AppendKey(nil, wire.KindWithdraw, 1))
	f.Add(wire.AppendKey(nil, wire.KindAccept, 1))
	f.Add((&wire.Decline{Key: 1, Reason: "r"}).Append(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		near, far := pair(t)
		s := start(t, near, patience)
		_, _ = far.Write(p)
		if err := far.CloseWrite(); err != nil {
			return
		}
		go func() { _, _ = io.Copy(io.Discard, far) }()
		<-s.Done()
	})
}
