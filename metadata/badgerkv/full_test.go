package badgerkv_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// These tell a test binary its role: a process inside a mount namespace of its own, one
// that fills a disk, or one that changes records on it.
const (
	insideNS = "HMCFS_BADGERKV_NAMESPACE"
	fillDir  = "HMCFS_BADGERKV_FILL_DIR"
	worksDir = "HMCFS_BADGERKV_WORKS_DIR"
)

// diskSize is the size, in bytes, of the disks that are filled.
const diskSize = 256 << 20

// testReserve is less than a filler writes at a time, so that disks are filled completely.
const testReserve = 16 << 20

// disks are the file systems, each mounted at a directory.
func disks() map[string]func(dir string) error {
	return map[string]func(dir string) error{
		"tmpfs": func(dir string) error {
			return unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize))
		},
		"ext4": func(dir string) error {
			image := dir + ".image"
			if err := os.WriteFile(image, nil, 0o600); err != nil {
				return err
			}
			if err := os.Truncate(image, diskSize); err != nil {
				return err
			}
			if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", image).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		},
	}
}

// onDisk runs a test in a process with a mount namespace of its own, on each kind of disk.
func onDisk(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	if os.Getenv(insideNS) == "" {
		if os.Geteuid() != 0 {
			t.Skip("mounts need root")
		}
		args := []string{"-test.run", "^" + t.Name() + "$", "-test.v", "-test.timeout", "5m"}
		if testing.Short() {
			args = append(args, "-test.short")
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = append(os.Environ(), insideNS+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for name, mount := range disks() {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "disk")
			if err := errors.Join(os.Mkdir(dir, 0o700), mount(dir)); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			test(t, dir)
		})
	}
}

// child is a test binary in another role, controlled by lines on its standard input.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func start(t *testing.T, what, dir string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^$")
	cmd.Env = append(os.Environ(), what+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // reports that the process was killed
		if t.Failed() {
			t.Logf("%s says:\n%.4000s", what, stderr.String())
		}
	})
	return &child{cmd: cmd, in: in, lines: bufio.NewScanner(out)}
}

// ask sends a line and returns the answer.
func (c *child) ask(t *testing.T, line string) string {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if !c.lines.Scan() {
		t.Fatalf("%s: the process has ended: %v, %v", line, c.lines.Err(), c.cmd.Wait())
	}
	if answer := c.lines.Text(); !strings.HasPrefix(answer, "error") {
		return answer
	}
	t.Fatalf("%s: %s", line, c.lines.Text())
	return ""
}

// filler fills a disk to the last byte and frees it, on command.
func filler(dir string) int {
	path := filepath.Join(dir, "filler")
	noise := make([]byte, 1<<20)
	for i := 0; i < len(noise); i += 8 {
		binary.LittleEndian.PutUint64(noise[i:], rand.Uint64())
	}
	for scan := bufio.NewScanner(os.Stdin); scan.Scan(); {
		var err error
		switch scan.Text() {
		case "fill":
			err = fillUp(path, noise)
		case "free":
			err = os.Remove(path)
		}
		if err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
			return 1
		}
		fmt.Fprintln(os.Stdout, "done")
	}
	return 0
}

func fillUp(path string, noise []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	for size := len(noise); size > 0; {
		_, err := f.Write(noise[:size])
		switch {
		case errors.Is(err, unix.ENOSPC):
			size /= 4
		case err != nil:
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// worker changes its own keys, and knows their values.
type worker struct {
	id    int
	kv    *badgerkv.KV
	keys  map[string][]byte
	tally *tally
}

// tally counts what workers have done; refused counts refusals for lack of space.
type tally struct{ put, removed, refused atomic.Int64 }

const keysPerWorker = 3000

func (w *worker) step(ctx context.Context) error {
	key := fmt.Appendf(nil, "worker%d/%05d", w.id, rand.IntN(keysPerWorker))
	var value []byte
	count := &w.tally.put
	err := w.kv.Room(ctx)
	if err == nil && rand.IntN(8) > 0 {
		value = make([]byte, 8*(1+rand.IntN(600)))
		for i := 0; i < len(value); i += 8 {
			binary.LittleEndian.PutUint64(value[i:], rand.Uint64())
		}
	}
	if err != nil {
		count = &w.tally.removed
		w.tally.refused.Add(1)
		if !errors.Is(err, metadata.ErrNoSpace) {
			return err
		}
		if w.keys[string(key)] == nil { // there is nothing to remove
			return nil
		}
	}
	err = w.kv.Update(ctx, func(tx metadata.KVTxn) error {
		if value == nil {
			return tx.Delete(key)
		}
		return tx.Set(key, value)
	})
	switch {
	case errors.Is(err, metadata.ErrNoSpace):
		w.tally.refused.Add(1)
		return nil
	case err != nil:
		return err
	case value == nil:
		delete(w.keys, string(key))
	default:
		w.keys[string(key)] = value
	}
	count.Add(1)
	return nil
}

// verify compares the stored values with those that the worker has set.
func (w *worker) verify(ctx context.Context) error {
	return w.kv.View(ctx, func(tx metadata.KVTxn) error {
		found := 0
		err := tx.Scan(fmt.Appendf(nil, "worker%d/", w.id), nil, func(key, value []byte) (bool, error) {
			found++
			if !bytes.Equal(value, w.keys[string(key)]) {
				return false, fmt.Errorf("%s holds something else", key)
			}
			return true, nil
		})
		if err == nil && found != len(w.keys) {
			err = fmt.Errorf("worker %d has %d keys of %d", w.id, found, len(w.keys))
		}
		return err
	})
}

// works changes records until it is told to stop, and counts its operations.
func works(ctx context.Context, dir string) int {
	kv, err := badgerkv.Open(ctx, badgerkv.Options{Dir: dir, Reserve: testReserve})
	if err != nil {
		fmt.Fprintln(os.Stdout, "error", err)
		return 1
	}
	var did tally
	var over atomic.Bool
	var running sync.WaitGroup
	workers := make([]*worker, 4)
	for i := range workers {
		w := &worker{i, kv, map[string][]byte{}, &did}
		workers[i] = w
		running.Go(func() {
			for !over.Load() {
				if err := w.step(ctx); err != nil {
					fmt.Fprintln(os.Stdout, "error", err)
					return
				}
			}
		})
	}
	for scan := bufio.NewScanner(os.Stdin); scan.Scan(); {
		var err error
		switch scan.Text() {
		case "stop":
			over.Store(true)
			running.Wait()
		case "verify":
			for _, w := range workers {
				err = errors.Join(err, w.verify(ctx))
			}
		case "close":
			err = kv.Close()
		case "reopen":
			kv, err = badgerkv.Open(ctx, badgerkv.Options{Dir: dir})
			for _, w := range workers {
				w.kv = kv
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
			continue
		}
		fmt.Fprintln(os.Stdout, did.put.Load(), did.removed.Load(), did.refused.Load())
	}
	return 0
}

// counts are the counts of a process that runs works.
type counts struct{ put, removed, refused int64 }

func (c *child) counts(t *testing.T) counts {
	t.Helper()
	var n counts
	if _, err := fmt.Sscan(c.ask(t, "count"), &n.put, &n.removed, &n.refused); err != nil {
		t.Fatal(err)
	}
	return n
}

// await polls until enough has been done since.
func (c *child) await(t *testing.T, first counts, enough func(since counts) bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(2 * time.Minute); ; <-tick.C {
		n := c.counts(t)
		since := counts{n.put - first.put, n.removed - first.removed, n.refused - first.refused}
		if enough(since) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("too little was done in time: %+v", since)
		}
	}
}

// TestFullDisk has one process change records while another repeatedly fills the disk to
// the last byte and frees it: the first one must survive, refuse changes while the disk is
// full, remove records, continue when there is space, and have all its records at the end.
func TestFullDisk(t *testing.T) {
	onDisk(t, func(t *testing.T, dir string) {
		w, f := start(t, worksDir, filepath.Join(dir, "records")), start(t, fillDir, dir)
		for range kit.Rounds(3, 4, 8) {
			w.await(t, w.counts(t), func(n counts) bool { return n.put > 4000 })
			before := w.counts(t)
			f.ask(t, "fill")
			w.await(t, before, func(n counts) bool { return n.refused > 500 && n.removed > 100 })
			w.ask(t, "verify-running")
			f.ask(t, "free")
		}
		w.await(t, w.counts(t), func(n counts) bool { return n.put > 4000 })
		t.Logf("%+v", w.counts(t))
		for _, what := range []string{"stop", "verify", "close", "reopen", "verify", "close"} {
			w.ask(t, what)
		}
	})
}

// TestCloseFull closes a store whose disk is full, and opens it in another process when
// there is space again.
func TestCloseFull(t *testing.T) {
	onDisk(t, func(t *testing.T, dir string) {
		records := filepath.Join(dir, "records")
		w, f := start(t, worksDir, records), start(t, fillDir, dir)
		w.await(t, w.counts(t), func(n counts) bool { return n.put > 2000 })
		w.ask(t, "stop")
		f.ask(t, "fill")
		w.ask(t, "close")
		if err := errors.Join(w.in.Close(), w.cmd.Wait()); err != nil {
			t.Fatal(err)
		}
		_, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: records})
		if !errors.Is(err, metadata.ErrNoSpace) || !strings.Contains(err.Error(), records) {
			t.Errorf("Open on a full disk = %v, want ErrNoSpace that names %s", err, records)
		}
		f.ask(t, "free")
		if err := open(t, records).Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestDirectoryGone closes a store whose directory was removed.
func TestDirectoryGone(t *testing.T) {
	for name, away := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"renamed": func(dir string) error { return os.Rename(dir, dir+".old") },
		"replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "records")
			kv := open(t, dir)
			set := func() error {
				return kv.Update(t.Context(), func(tx metadata.KVTxn) error { return tx.Set([]byte("k"), []byte("v")) })
			}
			if err := errors.Join(set(), away(dir)); err != nil {
				t.Fatal(err)
			}
			if err := set(); !errors.Is(err, badgerkv.ErrGone) || !strings.Contains(err.Error(), dir) {
				t.Errorf("Update = %v, want ErrGone that names %s", err, dir)
			}
			err := kv.View(t.Context(), func(tx metadata.KVTxn) error {
				_, err := tx.Get([]byte("k"))
				return err
			})
			if err != nil {
				t.Errorf("Get = %v", err)
			}
			if err := kv.Close(); !errors.Is(err, badgerkv.ErrGone) {
				t.Errorf("Close = %v, want ErrGone", err)
			}
		})
	}
}

// TestReadOnlyDisk closes a store whose disk was made read-only, as when a disk fails,
// which open files do not prevent, and opens one on such a disk.
func TestReadOnlyDisk(t *testing.T) {
	onDisk(t, func(t *testing.T, dir string) {
		records := filepath.Join(dir, "records")
		if err := open(t, records).Close(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		_, err := badgerkv.Open(t.Context(), badgerkv.Options{Dir: records})
		if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), records) {
			t.Errorf("Open = %v, want EROFS that names %s", err, records)
		}
	})
}

// TestCloseAtRotation closes a store whose last commit was the first in a new log.
func TestCloseAtRotation(t *testing.T) {
	dir := t.TempDir()
	kv := open(t, dir)
	value := make([]byte, 64<<10)
	for i := 0; ; i++ {
		err := kv.Update(t.Context(), func(tx metadata.KVTxn) error {
			return tx.Set(fmt.Appendf(nil, "key%d", i), value)
		})
		if err != nil {
			t.Fatal(err)
		}
		names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(names[len(names)-1]); err != nil || st.Size() > 0 {
			break
		}
	}
	for range 2 {
		if err := kv.Close(); err != nil {
			t.Fatal(err)
		}
		kv = open(t, dir)
	}
	if err := kv.Close(); err != nil {
		t.Error(err)
	}
}

// TestAllocated checks all files that Badger maps: none may get its blocks only when it is
// stored to. The store has two tables and a log before it is opened again.
func TestAllocated(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir)
	fill(t, dir)
	kv := open(t, dir)
	defer func() {
		if err := kv.Close(); err != nil {
			t.Error(err)
		}
	}()
	const least = 8 << 20 // of a log, which is not used to its end
	kinds := map[string]int{}
	for _, pattern := range []string{"*.sst", "*.mem", "*.vlog", "DISCARD"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		kinds[pattern] = len(names)
		for i, name := range names {
			var st unix.Stat_t
			if err := unix.Stat(name, &st); err != nil {
				t.Fatal(err)
			}
			want := st.Size
			switch {
			case pattern == "*.mem":
				want = least
			case pattern == "*.vlog" && i < len(names)-1:
				want = 0 // no longer written to
			}
			if got := st.Blocks * 512; got < want {
				t.Errorf("%s has %d bytes of blocks, want %d", name, got, want)
			}
		}
	}
	for pattern, least := range map[string]int{"*.sst": 1, "*.mem": 2, "*.vlog": 1, "DISCARD": 1} {
		if kinds[pattern] < least {
			t.Errorf("there are %d %s, want %d", kinds[pattern], pattern, least)
		}
	}
}
