package job_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/job"
)

const patience = 60 * time.Second

func within(t testing.TB) context.Context {
	t.Helper()
	return kit.Context(t, patience)
}

func shortly(t testing.TB) context.Context {
	t.Helper()
	return kit.Context(t, 50*time.Millisecond)
}

// backends runs fn for each way to connect ranks that are goroutines.
func backends(t *testing.T, fn func(t *testing.T, tweak func(rank int, o *job.Options))) {
	t.Helper()
	for name, tweak := range map[string]func(rank int, o *job.Options){
		"shm": func(_ int, o *job.Options) { o.Backend = job.SHM },
		"tcp": func(_ int, o *job.Options) { o.Backend = job.TCP },
		"two hosts": func(rank int, o *job.Options) {
			o.Host = []string{"a", "b"}[rank%2]
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t, kit.Ignore("/hmcfs-"))
			fn(t, tweak)
		})
	}
}

// start starts the n ranks of a job, which ends with the test.
func start(t testing.TB, n int, tweak func(rank int, o *job.Options)) []*job.Job {
	t.Helper()
	dir := t.TempDir()
	all := make([]*job.Job, n)
	each(t, n, func(rank int) (err error) {
		o := job.Options{Rank: rank, World: n, Dir: dir, Timeout: patience}
		if tweak != nil {
			tweak(rank, &o)
		}
		all[rank], err = job.Init(within(t), o)
		return err
	})
	t.Cleanup(func() {
		for _, j := range all {
			if err := errors.Join(j.Close(), j.Close()); err != nil {
				t.Error(err)
			}
			if live := j.Table().Stats().Live; live != 0 {
				t.Errorf("%d registrations are left", live)
			}
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 1 { // the secret
			t.Errorf("the job's directory has %v, %v", left, err)
		}
	})
	return all
}

// each runs fn for n ranks concurrently.
func each(t testing.TB, n int, fn func(rank int) error) {
	t.Helper()
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			if err := fn(rank); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// TestWindows has each rank write to the windows of all.
func TestWindows(t *testing.T) {
	backends(t, func(t *testing.T, tweak func(int, *job.Options)) {
		const n = 4
		all, ctx := start(t, n, tweak), within(t)
		each(t, n, func(rank int) error {
			for turn := range uint64(2) {
				if err := fillWindows(ctx, all[rank].World(), 100*turn); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// fillWindows allocates windows, and each rank fills a part of each.
func fillWindows(ctx context.Context, d *job.Domain, seed uint64) error {
	const part = 3000
	rank, n := d.Rank(), d.Size()
	size := n * part
	w, err := d.AllocWindows(ctx, devices.Size(size))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(w.Local(), func(b byte) bool { return b != 0 }) || w.Size() != devices.Size(size) {
		return fmt.Errorf("a window of %d bytes that is not zero", w.Size())
	}
	if _, err = d.AllocWindows(ctx, 8); !errors.Is(err, job.ErrWindows) {
		return fmt.Errorf("a second set: %w", err)
	}
	if err = d.Barrier(ctx); err != nil {
		return err
	}
	for peer := range n {
		if err = w.Put(ctx, peer, uint64(rank*part), kit.Bytes(seed+uint64(peer), int64(rank*part), part)); err != nil {
			return err
		}
	}
	if err = d.Barrier(ctx); err != nil {
		return err
	}
	got := make([]byte, size)
	for peer := range n {
		if err = w.Get(ctx, peer, 0, got); err != nil {
			return err
		}
		if at := kit.DiffAt(got, seed+uint64(peer), 0); at >= 0 {
			return fmt.Errorf("byte %d of the window of rank %d differs", at, peer)
		}
	}
	if err = errors.Join(checkContext(w, rank, n), w.Release(ctx), w.Release(ctx)); err != nil {
		return err
	}
	if err = w.Put(ctx, 0, 0, got[:1]); !errors.Is(err, job.ErrWindows) || w.Local() != nil {
		return fmt.Errorf("after the release: %w", err)
	}
	return nil
}

// checkContext compares a CommContext with its windows.
func checkContext(w *job.Windows, rank, n int) error {
	c := w.Context()
	if len(c) != 1056 || binary.LittleEndian.Uint64(c[0:]) != 0 || binary.LittleEndian.Uint64(c[8:]) != 0 ||
		binary.LittleEndian.Uint32(c[16:]) != uint32(rank) || binary.LittleEndian.Uint32(c[20:]) != uint32(n) ||
		binary.LittleEndian.Uint64(c[24:]) != uint64(w.Size()) {
		return fmt.Errorf("context % x", c[:32])
	}
	for r := range plan.MaxRanks {
		in, out := binary.LittleEndian.Uint64(c[32+8*r:]), binary.LittleEndian.Uint64(c[544+8*r:])
		if seen := r < n && w.Of(r) != nil; in != out || (in != 0) != seen {
			return fmt.Errorf("rank %d is at %x and %x", r, in, out)
		}
	}
	return nil
}

// TestBadWindows requests invalid windows, and then valid ones.
func TestBadWindows(t *testing.T) {
	backends(t, func(t *testing.T, tweak func(int, *job.Options)) {
		all, ctx := start(t, 3, tweak), within(t)
		each(t, 3, func(rank int) error {
			d := all[rank].World()
			for _, size := range []devices.Size{0, job.MaxWindow + 1, devices.Size(4096 + rank)} {
				if _, err := d.AllocWindows(ctx, size); !errors.Is(err, job.ErrWindows) {
					return fmt.Errorf("windows of %d bytes: %w", uint64(size), err)
				}
			}
			w, err := d.AllocWindows(ctx, 100)
			if err != nil {
				return err
			}
			for _, bad := range []struct{ rank, off, n int }{{-1, 0, 1}, {3, 0, 1}, {0, 100, 1}, {0, 0, 101}} {
				if err = w.Put(ctx, bad.rank, uint64(bad.off), make([]byte, bad.n)); !errors.Is(err, devices.ErrRange) {
					return fmt.Errorf("%+v: %w", bad, err)
				}
			}
			return w.Release(ctx)
		})
	})
}

// TestBarrier runs 1000 barriers with pauses: none returns early.
func TestBarrier(t *testing.T) {
	backends(t, func(t *testing.T, tweak func(int, *job.Options)) {
		const n, rounds = 4, 1000
		all, ctx := start(t, n, tweak), within(t)
		var come [rounds]atomic.Int32
		each(t, n, func(rank int) error {
			random := rand.New(rand.NewPCG(1, uint64(rank)))
			for i := range rounds {
				if random.IntN(20) == 0 {
					select {
					case <-time.After(time.Duration(random.IntN(300)) * time.Microsecond):
					case <-ctx.Done():
					}
				}
				come[i].Add(1)
				if err := all[rank].World().Barrier(ctx); err != nil {
					return err
				}
				if come[i].Load() != n {
					return fmt.Errorf("barrier %d was over for %d ranks of %d", i, come[i].Load(), n)
				}
			}
			return nil
		})
	})
}

// TestLateBarrier: a barrier times out and is used again.
func TestLateBarrier(t *testing.T) {
	backends(t, func(t *testing.T, tweak func(int, *job.Options)) {
		const n = 3
		all, ctx := start(t, n, tweak), within(t)
		// Each error must name rank 2, and also the other rank if that came only after this
		// one had given up.
		for alone := 0; alone < 3; {
			var named [2][]plan.Rank
			each(t, 2, func(rank int) error {
				err := all[rank].World().Barrier(shortly(t))
				var missing *fabric.MissingError
				if !errors.As(err, &missing) || !slices.Contains(missing.Ranks, 2) || slices.Contains(missing.Ranks, plan.Rank(rank)) ||
					!errors.Is(err, context.DeadlineExceeded) {
					return fmt.Errorf("this must name rank 2: %w", err)
				}
				named[rank] = missing.Ranks
				return nil
			})
			if len(named[0]) == 1 && len(named[1]) == 1 {
				alone++
			}
			if ctx.Err() != nil {
				t.Fatalf("rank 2 is never named alone: %v", named)
			}
		}
		for range 3 {
			each(t, n, func(rank int) error { return all[rank].World().Barrier(ctx) })
		}
	})
}

// TestDomains makes two domains with a rank in common.
func TestDomains(t *testing.T) {
	backends(t, func(t *testing.T, tweak func(int, *job.Options)) {
		all, ctx := start(t, 3, tweak), within(t)
		each(t, 3, func(rank int) error { return inDomains(ctx, all[rank].World()) })
	})
}

// inDomains makes two domains, of ranks 0 and 2 and of ranks 1 and 2, and sums numbers in
// those that it is in.
func inDomains(ctx context.Context, world *job.Domain) error {
	rank := world.Rank()
	var mine []*job.Domain
	var want []uint64
	for _, of := range []struct {
		name  string
		ranks []int
	}{{"even", []int{0, 2}}, {"tail", []int{1, 2}}} {
		d, err := world.Derive(ctx, of.name, of.ranks)
		if !slices.Contains(of.ranks, rank) {
			if !errors.Is(err, domain.ErrNotMember) {
				return fmt.Errorf("%s without us: %w", of.name, err)
			}
			continue
		}
		if err != nil {
			return err
		}
		if d.Size() != 2 || d.Rank() != slices.Index(of.ranks, rank) {
			return fmt.Errorf("rank %d of %d in %s", d.Rank(), d.Size(), of.name)
		}
		mine, want = append(mine, d), append(want, uint64(20+of.ranks[0]+of.ranks[1]))
	}
	for i, d := range mine {
		if sum, err := sumOf(ctx, d, uint64(rank)); err != nil || sum != want[i] {
			return fmt.Errorf("sum %d, not %d: %w", sum, want[i], err)
		}
	}
	if rank != 2 {
		return mine[0].Destroy() //nolint:contextcheck // cleanup must not depend on the context
	}
	return nil
}

// sumOf sums a number of each rank in windows of the domain.
func sumOf(ctx context.Context, d *job.Domain, mine uint64) (uint64, error) {
	w, err := d.AllocWindows(ctx, 16)
	if err != nil {
		return 0, err
	}
	number := binary.LittleEndian.AppendUint64(nil, mine+10)
	for peer := range 2 {
		if err = w.Put(ctx, peer, uint64(8*d.Rank()), number); err != nil {
			return 0, err
		}
	}
	if err = d.Barrier(ctx); err != nil {
		return 0, err
	}
	sum := binary.LittleEndian.Uint64(w.Local()) + binary.LittleEndian.Uint64(w.Local()[8:])
	return sum, w.Release(ctx)
}

// TestOptions checks that invalid options are rejected.
func TestOptions(t *testing.T) {
	good := job.Options{World: 2, Dir: t.TempDir()}
	for name, tweak := range map[string]func(o *job.Options){
		"no ranks":    func(o *job.Options) { o.World = 0 },
		"too many":    func(o *job.Options) { o.World = plan.MaxRanks + 1 },
		"no rank":     func(o *job.Options) { o.Rank = 2 },
		"negative":    func(o *job.Options) { o.Rank = -1 },
		"backend":     func(o *job.Options) { o.Backend = "mpi" },
		"no place":    func(o *job.Options) { o.Dir = "" },
		"short book":  func(o *job.Options) { o.AddressBook = make([]control.Address, 1) },
		"in the past": func(o *job.Options) { o.Timeout = -1 },
	} {
		o := good
		tweak(&o)
		if _, err := job.Init(t.Context(), o); !errors.Is(err, job.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good.Timeout = 100 * time.Millisecond
	if _, err := job.Init(t.Context(), good); err == nil || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("a rank that does not come is not named: %v", err)
	}
}

// TestFromEnv reads the environment set by the runner.
func TestFromEnv(t *testing.T) {
	secret := t.TempDir() + "/secret"
	if err := os.WriteFile(secret, []byte(strings.Repeat("ab", 16)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"HMCFS_RANK": "1", "HMCFS_WORLD": "2", "HMCFS_JOB_DIR": "/run/j", "HMCFS_BOOK": "unix:/run/j/0,127.0.0.1:80",
		"HMCFS_SECRET_FILE": secret, "HMCFS_TRANSPORT": "tcp",
	}
	o, err := job.FromEnv(func(k string) string { return env[k] })
	if err != nil || o.Rank != 1 || o.World != 2 || o.Dir != "/run/j" || o.Backend != job.TCP || len(o.AddressBook) != 2 || len(o.Secret) != 16 {
		t.Errorf("%+v, %v", o, err)
	}
	for name, value := range map[string]string{"HMCFS_RANK": "", "HMCFS_WORLD": "x", "HMCFS_BOOK": "unix:", "HMCFS_SECRET_FILE": "/nowhere"} {
		_, err = job.FromEnv(func(k string) string {
			if k == name {
				return value
			}
			return env[k]
		})
		if err == nil {
			t.Errorf("%s=%q", name, value)
		}
	}
}

// TestSecretOfAnother: a secret that other users can read, or have written, is rejected.
func TestSecretOfAnother(t *testing.T) {
	text := []byte(strings.Repeat("ab", 32) + "\n")
	for name, spoil := range map[string]func(path string) error{
		"readable": func(path string) error { return os.Chmod(path, 0o644) },
		"writable": func(path string) error { return os.Chmod(path, 0o620) },
		"another user's": func(path string) error {
			if os.Geteuid() != 0 {
				return os.Chmod(path, 0o644)
			}
			return os.Chown(path, 12345, 12345)
		},
		"a link": func(path string) error {
			return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		},
		"a pipe": func(path string) error {
			return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600))
		},
		"long": func(path string) error { return os.Truncate(path, 1<<30) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "secret")
			if err := errors.Join(os.WriteFile(path, text, 0o600), spoil(path)); err != nil {
				t.Fatal(err)
			}
			j, err := job.Init(within(t), job.Options{World: 1, Dir: dir})
			if err == nil {
				err = j.Close()
				t.Errorf("a secret that is %s was believed, %v", name, err)
			}
			if !errors.Is(err, job.ErrOptions) && err != nil && name != "a link" {
				t.Errorf("a secret that is %s: %v", name, err)
			}
		})
	}
}
