package cuda

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// wrong lists calls for which the stand-in must end the process. Each is made by a process
// of its own.
func wrong() map[string]struct {
	call func(t *testing.T, a, b *device)
	says string
} {
	plain := func(t *testing.T, d *device) address {
		t.Helper()
		return card.BlockOf(alloc(t, d, 100).All()).Addr
	}
	stream := func(t *testing.T, d *device) (s cuStream) {
		t.Helper()
		if err := d.withLane(t.Context(), func(l *lane) error { s = l.streams[0]; return nil }); err != nil {
			t.Fatal(err)
		}
		return s
	}
	type wrongCall = struct {
		call func(t *testing.T, a, b *device)
		says string
	}
	return map[string]wrongCall{
		"no context": {func(_ *testing.T, a, _ *device) {
			// Some of these threads have never had a context.
			var all sync.WaitGroup
			begin := make(chan struct{})
			for range 20 {
				all.Go(func() {
					runtime.LockOSThread() // the thread ends with the goroutine
					<-begin
					_, _ = a.api.memInfo()
				})
			}
			close(begin)
			all.Wait()
		}, "cuMemGetInfo_v2: the thread has no context"},
		"another card's memory": {func(t *testing.T, a, b *device) {
			p, s := plain(t, b), stream(t, a)
			_ = a.On(func() error { return a.api.fill(s, p, 1, 100) })
		}, "device 0 has no access"},
		"another card's stream": {func(t *testing.T, a, b *device) {
			p, s := plain(t, a), stream(t, b)
			_ = a.On(func() error { return a.api.fill(s, p, 1, 100) })
		}, "the stream is of device 1"},
		"past the end": {func(t *testing.T, a, _ *device) {
			p, s := plain(t, a), stream(t, a)
			_ = a.On(func() error { return a.api.fill(s, p.At(1), 1, 100) })
		}, "the allocation ends after 99"},
		"a host's address": {func(t *testing.T, a, _ *device) {
			s, p := stream(t, a), make([]byte, 100)
			_ = a.On(func() error { return a.api.copyIn(s, address(hostAddress(p)), p) })
		}, "is no address of a device"},
		"a double free": {func(t *testing.T, a, _ *device) {
			p := plain(t, a)
			_ = a.On(func() error { _ = a.api.free(p); return a.api.free(p) })
		}, "is no address of a device"},
		"a free inside": {func(t *testing.T, a, _ *device) {
			p := plain(t, a)
			_ = a.On(func() error { return a.api.free(p.At(1)) })
		}, "is not the begin"},
		"an overlap": {func(t *testing.T, a, _ *device) {
			p, s := plain(t, a), stream(t, a)
			_ = a.On(func() error { return a.api.copyWithin(s, p.At(1), p, 50) })
		}, "overlap"},
		"no access set": {func(t *testing.T, a, _ *device) {
			s := stream(t, a)
			_ = a.On(func() error {
				h, _ := a.api.create(a.units.plain, a.prop())
				p, _ := a.api.reserve(a.units.plain)
				_ = a.api.mapPhysical(p, a.units.plain, h)
				return a.api.fill(s, p, 1, 100)
			})
		}, "has no access"},
		"half a unit": {func(_ *testing.T, a, _ *device) {
			_ = a.On(func() error { _, err := a.api.create(a.units.plain/2, a.prop()); return err })
		}, "cuMemCreate: 1048576 bytes"},
		"memory that is left": {func(_ *testing.T, a, _ *device) {
			_ = a.On(func() error { _, err := a.api.alloc(100); return err })
			_ = a.Close()
		}, "100 bytes of device 0 are left"},
		"a peer without access": {func(t *testing.T, a, b *device) {
			c := peerCopy{dst: plain(t, a), src: plain(t, b), to: a.context, from: b.context}
			s := stream(t, a)
			_ = a.On(func() error { return a.api.copyPeer(s, c, 100) })
		}, "device 0 has no access to 1"},
		"memory unpinned on its way": {func(t *testing.T, a, _ *device) {
			p, s, host := plain(t, a), stream(t, a), mapped(t, 4096)
			_ = a.On(func() error {
				_ = a.api.hostRegister(host)
				_ = a.api.copyIn(s, p, host[:100])
				_ = a.api.hostUnregister(host)
				return a.api.synchronize(s)
			})
		}, "unpinned while a copy was on its way"},
	}
}

// TestStandInEndsWrongCalls proves that the stand-in detects mistakes.
func TestStandInEndsWrongCalls(t *testing.T) {
	calls := wrong()
	if name, is := strings.CutPrefix(flag.Arg(0), "wrong:"); is {
		d := NewDriver(Options{Library: flag.Arg(1)})
		calls[name].call(t, open(t, d, "cuda:0"), open(t, d, "cuda:1"))
		return
	}
	lib := newStandIn(t)
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStandInEndsWrongCalls$", "-test.count=1",
				"wrong:"+name, lib.path)
			// A process ended by the stand-in does not remove its files.
			cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
			var errs bytes.Buffer
			cmd.Stderr = &errs
			err := cmd.Run()
			line, _, _ := strings.Cut(errs.String(), "\n")
			if err == nil || !strings.HasPrefix(line, "stand-in: ") || !strings.Contains(line, c.says) {
				t.Errorf("%v, %q, want %q", err, line, c.says)
			}
		})
	}
}

// TestNothingMovesBeforeItIsWaitedFor proves that a missing synchronization is detected.
func TestNothingMovesBeforeItIsWaitedFor(t *testing.T) {
	d := open(t, newStandIn(t).driver(), "cuda:0")
	mem := alloc(t, d, 100)
	err := d.withLane(t.Context(), func(l *lane) error {
		host, err := d.api.hostAlloc(100)
		if err != nil {
			return err
		}
		p := card.BlockOf(mem.All()).Addr
		if err := d.api.fill(l.streams[0], p, 7, 100); err != nil {
			return err
		}
		if err := d.api.copyOut(l.streams[0], host, p); err != nil {
			return err
		}
		if host[0] != 0 {
			t.Error("a copy is there before it was waited for")
		}
		if err := d.api.synchronize(l.streams[0]); err != nil {
			return err
		}
		if host[0] != 7 || host[99] != 7 {
			t.Errorf("bytes %d and %d", host[0], host[99])
		}
		return d.api.freeHost(host)
	})
	if err != nil {
		t.Fatal(err)
	}
}
