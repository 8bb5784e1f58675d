package comm_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/netns"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	// vethRole makes a test process one of the two ends of the cable.
	vethRole, vethDir = "HMCFS_TEST_VETH", "HMCFS_TEST_VETH_DIR"
	vethSize          = 1 << 30
	vethAddr          = "10.213.0.2:7070"
)

// vethJob describes the work of the two ends.
type vethJob struct {
	Memory   string // "file", "opencl" or "bytes"
	Channels int
	Rounds   int
}

// vethTimes are the seconds of each round.
type vethTimes struct{ Put, Get []float64 }

// BenchmarkVeth copies 1 GiB between the memories of two processes that are
// connected by a virtual cable, both ways, and reports the rate relative to that
// of iperf3 over it with one stream, alternating, and with the best of several
// numbers of streams.
func BenchmarkVeth(b *testing.B) {
	kit.Require(b, "root", "tool:ip", "tool:nsenter", "tool:iperf3")
	cable, err := netns.New(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if cerr := cable.Close(); cerr != nil {
			b.Error(cerr)
		}
	}()
	for _, memory := range []string{"file", "opencl", "bytes"} {
		for _, channels := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/%d", memory, channels), func(b *testing.B) {
				if memory == "opencl" {
					kit.Require(b, "opencl")
				}
				for b.Loop() {
					benchVeth(b, cable, vethJob{Memory: memory, Channels: channels, Rounds: 3})
				}
			})
		}
	}
}

func benchVeth(b *testing.B, cable *netns.Cable, j vethJob) {
	b.Helper()
	one, two := iperf(b, cable, 1), iperf(b, cable, 2)
	times := runVeth(b, cable, j)
	one, two = max(one, iperf(b, cable, 1)), max(two, iperf(b, cable, 2))
	speed := func(s []float64) float64 {
		slices.Sort(s)
		return vethSize / s[len(s)/2]
	}
	put, get := speed(times.Put), speed(times.Get)
	b.ReportMetric(put/1e6, "put-MB/s")
	b.ReportMetric(get/1e6, "get-MB/s")
	b.ReportMetric(one/1e6, "iperf3-MB/s")
	b.ReportMetric(put/one, "put/iperf3")
	b.ReportMetric(get/one, "get/iperf3")
	b.ReportMetric(min(put, get)/max(one, two), "worst/best-iperf3")
	b.ReportMetric(0, "ns/op")
}

// iperf is bytes per second.
func iperf(b *testing.B, cable *netns.Cable, streams int) float64 {
	b.Helper()
	server := cable.Right.Command(b.Context(), "iperf3", "-s", "-1", "--forceflush")
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && !bytes.Contains(lines.Bytes(), []byte("listening")); {
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	text, err := cable.Left.Command(b.Context(), "iperf3", "-c", cable.Right.IPv4, "-n", strconv.Itoa(3*vethSize/streams), "-P", strconv.Itoa(streams), "-J").Output()
	if err = errors.Join(err, server.Wait()); err != nil {
		b.Fatalf("%v: %s", err, text)
	}
	var result struct {
		End struct {
			Received struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err = json.Unmarshal(text, &result); err != nil {
		b.Fatal(err)
	}
	return result.End.Received.Bits / 8
}

// runVeth starts the two ends.
func runVeth(b *testing.B, cable *netns.Cable, j vethJob) (times vethTimes) {
	b.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		b.Fatal(err)
	}
	start := func(s *netns.Space, role string) *exec.Cmd {
		c := s.Command(b.Context(), "/proc/"+strconv.Itoa(os.Getpid())+"/exe", string(text))
		c.Env, c.Stderr = append(os.Environ(), vethRole+"="+role), os.Stderr
		return c
	}
	far := start(cable.Right, "far")
	stdout, err := far.StdoutPipe()
	if err == nil {
		err = far.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	if _, err = bufio.NewReader(stdout).ReadString('\n'); err != nil {
		b.Fatal(err)
	}
	out, err := start(cable.Left, "near").Output()
	if err = errors.Join(err, far.Wait()); err != nil {
		b.Fatal(err)
	}
	if err = json.Unmarshal(out, &times); err != nil {
		b.Fatal(err)
	}
	return times
}

// beVeth runs a process at one end.
func beVeth(role, text string) error {
	var j vethJob
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	end, err := newVethEnd(ctx, role, j)
	if err != nil {
		return err
	}
	if role == "far" {
		err = end.far(ctx)
	} else {
		err = end.near(ctx)
	}
	return errors.Join(err, end.close())
}

// vethEnd is one of the two.
type vethEnd struct {
	job    vethJob
	engine *transport.Engine
	comm   *comm.Communicator
	file   *os.File
	card   devices.Device
	mem    *devices.Memory
	bytes  []byte
}

func newVethEnd(ctx context.Context, role string, j vethJob) (*vethEnd, error) {
	e := &vethEnd{job: j}
	var err error
	if e.engine, err = transport.New(transport.Options{}); err != nil {
		return nil, err
	}
	o := comm.Options{Secret: kit.Bytes(1, 0, 32), Engine: e.engine, Channels: j.Channels}
	if role == "far" {
		o.Rank = 1
	}
	if e.comm, err = comm.New(o); err != nil {
		return nil, err
	}
	switch j.Memory {
	case "file":
		fd, merr := vethFile()
		if merr != nil {
			return nil, merr
		}
		e.file = os.NewFile(uintptr(fd), "veth")
	case "opencl":
		spec, serr := devices.ParseSpec("opencl:0")
		if serr != nil {
			return nil, serr
		}
		if e.card, err = opencl.NewDriver(opencl.Options{}).Open(ctx, spec); err == nil {
			e.mem, err = e.card.Alloc(ctx, vethSize)
		}
	default:
		e.bytes = make([]byte, vethSize)
	}
	if err != nil {
		return nil, err
	}
	return e, e.fill(ctx)
}

func (e *vethEnd) close() error {
	err := errors.Join(e.comm.Close(), e.engine.Close())
	if e.mem != nil {
		err = errors.Join(err, e.mem.Release(), e.card.Close())
	}
	return err
}

func (e *vethEnd) span() transport.Span {
	switch {
	case e.file != nil:
		return transport.FileSpan("host", e.file, 0, vethSize)
	case e.mem != nil:
		return transport.DeviceSpan(e.mem.All())
	}
	return transport.HostSpan(e.bytes)
}

// fill touches all of the memory.
func (e *vethEnd) fill(ctx context.Context) error {
	p := kit.Bytes(uint64(e.comm.Rank()), 0, 4<<20)
	for off := 0; off < vethSize; off += len(p) {
		part, err := e.span().Part(devices.Offset(off), devices.Size(len(p)))
		if err == nil {
			_, err = e.engine.Copy(ctx, part, transport.HostSpan(p))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// far shares the memory for each round, and empties a file first.
func (e *vethEnd) far(ctx context.Context) error {
	if _, err := e.comm.Listen(ctx, control.Address{Network: control.TCP, Addr: vethAddr}); err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString("listening\n"); err != nil {
		return err
	}
	if err := e.comm.Await(ctx, 0); err != nil {
		return err
	}
	for {
		ask, err := e.comm.RecvMessage(ctx, 0)
		if errors.Is(err, control.ErrDisconnected) {
			return nil
		}
		if err == nil && string(ask) == "empty" && e.file != nil {
			err = e.file.Truncate(0)
		}
		if err != nil {
			return err
		}
		b, err := e.comm.Table().RegisterSpan(e.span())
		if err != nil {
			return err
		}
		d, err := e.comm.Share(ctx, 0, b, both)
		if err == nil {
			err = e.comm.SendMessage(ctx, 0, d.Append(nil))
		}
		if err == nil {
			_, err = e.comm.RecvMessage(ctx, 0)
		}
		if err = errors.Join(err, b.Close(ctx)); err != nil {
			return err
		}
	}
}

// round is one copy.
func (e *vethEnd) round(ctx context.Context, put bool) (float64, error) {
	ask := "full"
	if put {
		ask = "empty"
	} else if e.file != nil {
		if err := e.file.Truncate(0); err != nil {
			return 0, err
		}
	}
	if err := e.comm.SendMessage(ctx, 1, []byte(ask)); err != nil {
		return 0, err
	}
	p, err := e.comm.RecvMessage(ctx, 1)
	if err != nil {
		return 0, err
	}
	d, err := wire.ParseDescriptor(p)
	if err != nil {
		return 0, err
	}
	there := transport.RemoteSpan(e.comm.Remote(1, d), 0, vethSize)
	begin := time.Now()
	if put {
		_, err = e.engine.Copy(ctx, there, e.span())
	} else {
		_, err = e.engine.Copy(ctx, e.span(), there)
	}
	return time.Since(begin).Seconds(), errors.Join(err, e.comm.SendMessage(ctx, 1, []byte("done")))
}

func (e *vethEnd) near(ctx context.Context) error {
	if err := e.comm.Connect(ctx, 1, control.Address{Network: control.TCP, Addr: vethAddr}); err != nil {
		return err
	}
	var times vethTimes
	for range e.job.Rounds {
		put, err := e.round(ctx, true)
		if err != nil {
			return err
		}
		get, err := e.round(ctx, false)
		if err != nil {
			return err
		}
		times.Put, times.Get = append(times.Put, put), append(times.Get, get)
	}
	return json.NewEncoder(os.Stdout).Encode(times)
}

// vethFile is memory of a tmpfs: of the one that vethDir names, if any.
func vethFile() (int, error) {
	if dir := os.Getenv(vethDir); dir != "" {
		return unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	}
	return unix.MemfdCreate("veth", unix.MFD_CLOEXEC)
}
