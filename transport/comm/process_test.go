package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/cuda"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/spread"
	"github.com/hmcfs/hmcfs/tests/standin"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	patience = 60 * time.Second
	// rankAt makes a test process rank 1: it is the socket on which it listens.
	// cudaAt is the library of its card.
	rankAt, cudaAt = "HMCFS_TEST_RANK_AT", "HMCFS_TEST_CUDA"
	// memorySize is the size of each of the ranks' buffers, in bytes.
	memorySize = 8 << 20
	// load is the tag that makes rank 1 put endlessly.
	load wire.Tag = 1000
	both          = wire.Readable | wire.Writable
)

func TestMain(m *testing.M) {
	if at := os.Getenv(rankAt); at != "" {
		if err := beRank(at, os.Getenv(cudaAt)); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "rank 1:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if role := os.Getenv(vethRole); role != "" {
		if err := beVeth(role, os.Args[1]); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, role, "end:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	spread.Main(m)
}

// member is a rank of two processes.
type member struct {
	*comm.Communicator
	engine *transport.Engine
	card   devices.Device
}

func newMember(rank wire.Rank, library string) (*member, error) {
	m := &member{}
	var err error
	if m.engine, err = transport.New(transport.Options{}); err != nil {
		return nil, err
	}
	o := comm.Options{Rank: rank, Secret: kit.Bytes(1, 0, 32), Engine: m.engine}
	if library != "" {
		spec, serr := devices.ParseSpec("cuda:0")
		if serr != nil {
			return nil, serr
		}
		if m.card, err = cuda.NewDriver(cuda.Options{Library: library}).Open(context.Background(), spec); err != nil {
			return nil, err
		}
		o.Devices = []devices.Device{m.card}
	}
	m.Communicator, err = comm.New(o)
	return m, err
}

// close releases everything.
func (m *member) close() error {
	err := errors.Join(m.Close(), m.engine.Close())
	if m.card != nil {
		err = errors.Join(err, m.card.Close())
	}
	return err
}

// beRank runs rank 1: it shares its memory with rank 0, and answers each tag with
// its own content. It ends when the other rank disconnects, or by kill -9.
func beRank(at, library string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := newMember(1, library)
	if err != nil {
		return err
	}
	if _, err = m.Listen(ctx, control.Address{Network: control.Unix, Addr: at}); err != nil {
		return err
	}
	if err = m.Await(ctx, 0); err != nil {
		return err
	}
	shared, err := m.share(ctx)
	if err != nil {
		return err
	}
	p, err := m.RecvMessage(ctx, 0)
	if err != nil {
		return err
	}
	d, err := wire.ParseDescriptor(p)
	if err != nil {
		return err
	}
	own, err := m.Table().Alloc(memorySize)
	for err == nil {
		err = m.answer(ctx, shared, own, d)
	}
	if errors.Is(err, control.ErrDisconnected) {
		return nil
	}
	return err
}

// share offers rank 0 host memory and, with a card, the card's memory by each
// kind of handle.
func (m *member) share(ctx context.Context) (all []*region.Buffer, err error) {
	b, err := m.Table().Alloc(memorySize)
	if err != nil {
		return nil, err
	}
	all = append(all, b)
	if m.card != nil {
		for _, kind := range []devices.HandleKind{devices.HandleIPC, devices.HandleVMM} {
			mem, aerr := devices.AllocShared(ctx, m.card, memorySize, kind)
			if aerr != nil {
				return nil, aerr
			}
			if b, err = m.Table().RegisterDevice(mem.All()); err != nil {
				return nil, err
			}
			all = append(all, b)
		}
	}
	for _, b := range all {
		d, serr := m.Share(ctx, 0, b, both)
		if serr != nil {
			return nil, serr
		}
		if err = m.SendMessage(ctx, 0, d.Append(nil)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// answer checks that each buffer holds the content that a tag names, and puts the
// next content to rank 0.
func (m *member) answer(ctx context.Context, shared []*region.Buffer, own *region.Buffer, d wire.Descriptor) error {
	tag, err := m.RecvTag(ctx, 0)
	if err != nil {
		return err
	}
	op := comm.Op{Local: own, Remote: d, Size: memorySize}
	for tag == load {
		if err = m.Put(ctx, 0, op); err != nil {
			return err
		}
	}
	got := make([]byte, memorySize)
	for i, b := range shared {
		if err = b.Load(ctx, transport.HostSpan(got), 0); err != nil {
			return err
		}
		if at := kit.DiffAt(got, uint64(tag), 0); at >= 0 {
			return fmt.Errorf("buffer %d: byte %d is not that of %d", i, at, tag)
		}
	}
	kit.FillAt(own.Host(0, memorySize), uint64(tag)+1, 0)
	return m.PutNotify(ctx, 0, op, tag+1)
}

// rankOne is the other process.
type rankOne struct {
	cmd    *exec.Cmd
	output bytes.Buffer
}

func startRank(t *testing.T, at control.Address, library string) *rankOne {
	t.Helper()
	r := &rankOne{cmd: exec.Command(os.Args[0], "-test.run=^$")}
	r.cmd.Env = append(os.Environ(), rankAt+"="+at.Addr, cudaAt+"="+library)
	r.cmd.Stderr = &r.output
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		if t.Failed() {
			t.Logf("rank 1 says: %s", &r.output)
		}
	})
	return r
}

// meet connects rank 0 and exchanges keys: to the n buffers of rank 1, and to
// one of ours.
func (m *member) meet(t *testing.T, at control.Address, n int) (theirs []wire.Descriptor, ours *region.Buffer) {
	t.Helper()
	kit.Eventually(t, patience, func() error { return m.Connect(within(t), 1, at) })
	for range n {
		p, err := m.RecvMessage(within(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		d, err := wire.ParseDescriptor(p)
		if err != nil {
			t.Fatal(err)
		}
		theirs = append(theirs, d)
	}
	ours = m.alloc(t)
	d, err := m.Share(within(t), 1, ours, both)
	if err == nil {
		err = m.SendMessage(within(t), 1, d.Append(nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	return theirs, ours
}

func (m *member) alloc(t *testing.T) *region.Buffer {
	t.Helper()
	b, err := m.Table().Alloc(memorySize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return b
}

func zero(t *testing.T, library string) *member {
	t.Helper()
	m, err := newMember(0, library)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func within(t *testing.T) context.Context {
	t.Helper()
	return kit.Context(t, patience)
}

// TestTwoProcesses puts to another process and receives its puts: in host memory,
// and in memory of a card that both have open.
func TestTwoProcesses(t *testing.T) {
	for name, card := range map[string]bool{"host": false, "cuda": true} {
		t.Run(name, func(t *testing.T) {
			library, buffers := "", 1
			if card {
				library, buffers = filepath.Join(standin.Library(t, "cuda", "libcuda.so.1"), "libcuda.so.1"), 3
			}
			at := socket(t)
			startRank(t, at, library)
			m := zero(t, library)
			theirs, ours := m.meet(t, at, buffers)
			if p := m.Peers()[0]; p.Transport != comm.SHM || p.Windows != buffers {
				t.Errorf("peer: %+v", p)
			}
			m.goThrough(t, theirs, ours)
		})
	}
}

// goThrough puts to all of the peer's memory, receives puts, and gets all of it.
func (m *member) goThrough(t *testing.T, theirs []wire.Descriptor, ours *region.Buffer) {
	t.Helper()
	local := m.alloc(t)
	for tag := wire.Tag(1); tag < 20; tag += 2 {
		transporttest.Fill(t, local, uint64(tag))
		for _, d := range theirs {
			if err := m.Put(within(t), 1, comm.Op{Local: local, Remote: d, Size: memorySize}); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.SendTag(within(t), 1, tag); err != nil {
			t.Fatal(err)
		}
		if got, err := m.RecvTag(within(t), 1); got != tag+1 || err != nil {
			t.Fatal(got, err)
		}
		transporttest.Check(t, ours, 0, memorySize, uint64(tag)+1, 0)
	}
	for _, d := range theirs {
		if err := m.Get(within(t), 1, comm.Op{Local: local, Remote: d, Size: memorySize}); err != nil {
			t.Fatal(err)
		}
		transporttest.Check(t, local, 0, memorySize, 19, 0)
	}
}

// TestKilledPeer kills the other process in the middle of puts both ways: every
// request ends, nothing is left, and a new process is a new session.
func TestKilledPeer(t *testing.T) {
	kit.Check(t, kit.Ignore("/hmcfs-"))
	at := socket(t)
	rank := startRank(t, at, "")
	m := zero(t, "")
	theirs, ours := m.meet(t, at, 1)
	local := m.alloc(t)
	if err := m.SendTag(within(t), 1, load); err != nil {
		t.Fatal(err)
	}
	op := comm.Op{Local: local, Remote: theirs[0], Size: memorySize}
	ended := make(chan error, 3)
	for i := range 2 {
		go func() {
			for {
				r, err := m.PutAsync(within(t), 1, op)
				if err == nil && i == 0 {
					err = r.Wait(within(t))
				}
				if err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	go func() {
		_, err := m.RecvTag(within(t), 1)
		ended <- err
	}()
	// It is putting: our memory changes.
	transporttest.FillPart(t, ours, 1, 4096)
	kit.Eventually(t, patience, func() bool { return !slices.Equal(ours.Host(0, 8), kit.Bytes(1, 0, 8)) })
	if err := rank.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-ended; !errors.Is(err, control.ErrDisconnected) {
			t.Errorf("ended with %v", err)
		}
	}
	_ = rank.cmd.Wait()
	startRank(t, at, "")
	again, _ := m.meet(t, at, 1)
	if err := m.Put(within(t), 1, op); !errors.Is(err, region.ErrKey) {
		t.Errorf("a key of the dead: %v", err)
	}
	op.Remote = again[0]
	if err := m.Put(within(t), 1, op); err != nil {
		t.Error(err)
	}
}
