package control

import (
	"context"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/tests/kit"
)

const (
	// floodRate is the number of strangers per second.
	floodRate = 5000
	// floodWay is the round-trip time between the honest rank and the listener.
	floodWay = 100 * time.Millisecond
)

// flood is a set of strangers that connect at a given rate, send the given bytes,
// and stay until they are turned away.
type flood struct {
	at   Address
	says []byte
	// from is the source of the n-th.
	from         func(n uint64) net.IP
	made, failed atomic.Uint64
	work         sync.WaitGroup
}

// run continues until the context ends.
func (f *flood) run(ctx context.Context) {
	const step = 5 * time.Millisecond
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.work.Wait()
			return
		}
		for range floodRate / int(time.Second/step) {
			f.work.Go(func() { f.one(ctx, f.made.Add(1)) })
		}
	}
}

func (f *flood) one(ctx context.Context, n uint64) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: f.from(n)}}
	c, err := d.DialContext(ctx, "tcp", f.at.Addr)
	if err != nil {
		f.failed.Add(1)
		return
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_, _ = c.Write(f.says)
	_, _ = c.Read(make([]byte, 1))
	_ = c.Close()
}

// TestFlood makes a rank that is 100 ms away join repeatedly while 5 000
// strangers per second connect, from one address and from many, and send nothing
// or one byte. It reports the cost.
func TestFlood(t *testing.T) {
	if !kit.Exhaustive() {
		t.Skip("a product of `make check`")
	}
	for name, from := range map[string]func(n uint64) net.IP{
		"one address":    func(uint64) net.IP { return net.IPv4(127, 0, 0, 2) },
		"many addresses": func(n uint64) net.IP { return net.IPv4(127, 1+byte(n>>16)&63, byte(n>>8), byte(n)|1) },
	} {
		for what, says := range map[string][]byte{"silent": nil, "one byte": {'h'}} {
			t.Run(name+"/"+what, func(t *testing.T) {
				kit.Check(t)
				core, lines := observer.New(zap.WarnLevel)
				o := options(0)
				o.Logger = zap.New(core)
				d := newDoor()
				l := listen(t, loopback(), o, d)
				ctx, stop := context.WithCancel(t.Context())
				f := &flood{at: l.Address(), says: says, from: from}
				var strangers sync.WaitGroup
				strangers.Go(func() { f.run(ctx) })
				defer strangers.Wait()
				defer stop()
				kit.Eventually(t, patience, func() bool { return f.made.Load() > floodRate })
				before, begun := f.made.Load(), time.Now()
				joins := farJoins(t, l, d, 30)
				rate := float64(f.made.Load()-before) / time.Since(begun).Seconds()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				texts := map[string]bool{}
				for _, line := range lines.All() {
					texts[line.Message] = true
				}
				t.Logf("%.0f strangers a second (%d could not connect); %d joins, median %v, longest %v; heap %d MiB; %d goroutines; %d kinds of lines",
					rate, f.failed.Load(), len(joins), joins[len(joins)/2], joins[len(joins)-1], m.HeapInuse>>20, runtime.NumGoroutine(), len(texts))
				if len(texts) > 4 {
					t.Errorf("%d messages, by which the log is limited: %v", len(texts), texts)
				}
			})
		}
	}
}

// travel lasts as long as the round trip to the far peer.
func travel() { <-time.After(floodWay) }

// farJoins makes an honest rank join n times, and returns the durations, sorted.
func farJoins(t *testing.T, l *Listener, d *door, n int) []time.Duration {
	t.Helper()
	var joins []time.Duration
	failed := 0
	for range n {
		begun := time.Now()
		// A listener sees a connection when its third packet arrives, which the
		// HELLO follows at once, however long the round trip is.
		travel()
		raw, err := net.Dial("tcp", l.Address().Addr)
		if err != nil {
			t.Fatal(err)
		}
		client := options(1)
		client.EnsureDefaults()
		c, err := client.connect(within(t), &far{Conn: raw, meanwhile: travel}, hello(0))
		if err != nil {
			failed++
			t.Logf("a join failed: %v", err)
			_ = raw.Close()
			continue
		}
		joins = append(joins, time.Since(begun))
		_, _ = c.Close(), accepted(t, d).Close()
		d.mu.Lock()
		clear(d.taken)
		d.mu.Unlock()
	}
	if failed > 0 || len(joins) == 0 {
		t.Fatalf("%d of %d joins failed", failed, n)
	}
	slices.Sort(joins)
	return joins
}
