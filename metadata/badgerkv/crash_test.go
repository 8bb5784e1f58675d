package badgerkv_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/spread"
)

// crashDir marks a test binary as the process to be killed.
const crashDir = "HMCFS_BADGERKV_CRASH_DIR"

// soonDir, if set beside it, makes it use UpdateSoon.
const soonDir = "HMCFS_BADGERKV_SOON"

// journalDir, if set beside both, gives it a journal: all changes survive then.
const journalDir = "HMCFS_BADGERKV_JOURNAL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		fmt.Fprintln(os.Stdout, "error", victim(context.Background(), dir))
		os.Exit(1)
	}
	if dir := os.Getenv(crowdDir); dir != "" {
		fmt.Fprintln(os.Stdout, "error", crowd(context.Background(), dir))
		os.Exit(1)
	}
	if dir := os.Getenv(damageDir); dir != "" {
		fmt.Fprintln(os.Stdout, "error", stateMaker(context.Background(), dir))
		os.Exit(1)
	}
	if dir := os.Getenv(fillDir); dir != "" {
		os.Exit(filler(dir))
	}
	if dir := os.Getenv(worksDir); dir != "" {
		os.Exit(works(context.Background(), dir))
	}
	spread.Main(m)
}

// pairs is the number of keys that one transaction of the victim writes, always with the
// same value.
const pairs = 5

// soonIn is the number of changes of a victim of which all but the last need not be written at once.
const soonIn = 7

// victim counts up, and prints each number once it is committed; with soonDir, those only that
// survive.
func victim(ctx context.Context, dir string) error {
	soon, opts := os.Getenv(soonDir) != "", badgerkv.Options{Dir: dir}
	if os.Getenv(journalDir) != "" {
		var err error
		if opts.Journal, err = journalOf(dir); err != nil {
			return err
		}
	}
	kv, err := badgerkv.Open(ctx, opts)
	if err != nil {
		return err
	}
	for turn := 1; ; turn++ {
		var n int
		update, later := kv.Update, soon && turn%soonIn != 0
		if later {
			update = kv.UpdateSoon
		}
		err := update(ctx, func(tx metadata.KVTxn) (err error) {
			if n, err = number(tx, 0); err != nil {
				return err
			}
			n++
			for i := range pairs {
				value := strconv.Itoa(n) + strings.Repeat(" ", n*i%900)
				if err := tx.Set(fmt.Appendf(nil, "n%d", i), []byte(value)); err != nil {
					return err
				}
			}
			return tx.Set(fmt.Appendf(nil, "log%09d", n), []byte("said"))
		})
		if err != nil {
			return err
		}
		if !later || opts.Journal != nil {
			fmt.Fprintln(os.Stdout, n)
		}
	}
}

func number(tx metadata.KVTxn, i int) (int, error) {
	data, err := tx.Get(fmt.Appendf(nil, "n%d", i))
	if errors.Is(err, metadata.ErrNoKey) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// TestKilled kills a writing process with SIGKILL: everything that it reported as committed
// is there completely, and at most one transaction more. Of those that are written later, too,
// the ones that are there are the first.
func TestKilled(t *testing.T) {
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for _, c := range []struct {
		name  string
		env   []string
		lines int
		ahead int // transactions that may be there beyond those reported
	}{
		{"Update", nil, 8000, 1},
		{"UpdateSoon", []string{soonDir + "=1"}, 2000, soonIn},
		{"journal", []string{soonDir + "=1", journalDir + "=1"}, 20000, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for range rounds {
				said := killVictim(t, dir, 1+rand.IntN(c.lines), c.env...)
				kv := openJournaled(t, dir)
				if err := kv.View(t.Context(), func(tx metadata.KVTxn) error { return allIsThere(tx, said, c.ahead) }); err != nil {
					t.Error(err)
				}
				if err := kv.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestUnwritten has a change that can't be written: nothing that was not written is seen from then
// on, nothing more is accepted, and Close returns.
func TestUnwritten(t *testing.T) {
	dir := t.TempDir()
	kv := open(t, dir)
	set := func(key string) func(metadata.KVTxn) error {
		return func(tx metadata.KVTxn) error { return tx.Set([]byte(key), []byte(key)) }
	}
	if err := errors.Join(kv.Update(t.Context(), set("before")), kv.UpdateSoon(t.Context(), set("soon"))); err != nil {
		t.Fatal(err)
	}
	kv.Spoil()
	if err := kv.Update(t.Context(), set("with it")); err == nil {
		t.Error("a change was accepted that was not written")
	}
	for name, update := range map[string]func(context.Context, func(metadata.KVTxn) error) error{"Update": kv.Update, "UpdateSoon": kv.UpdateSoon} {
		if err := update(t.Context(), set("behind")); err == nil {
			t.Errorf("%s: a change was accepted behind one that was not written", name)
		}
	}
	if got := keysOf(t, kv); got != "[before]" {
		t.Errorf("%s is seen", got)
	}
	if err := kv.Close(); err == nil {
		t.Error("Close does not report it")
	}
}

// TestUnwrittenJournal is TestUnwritten with a journal: what was accepted is seen from then on too, and is in the next store.
func TestUnwrittenJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	kv := openJournaled(t, dir)
	kv.FlushAfter(time.Hour, time.Hour)
	set := func(key string) func(metadata.KVTxn) error {
		return func(tx metadata.KVTxn) error { return tx.Set([]byte(key), []byte(key)) }
	}
	if err := errors.Join(kv.Update(t.Context(), set("a")), kv.Flush(), kv.Update(t.Context(), set("b"))); err != nil {
		t.Fatal(err)
	}
	kv.Spoil()
	if err := kv.Update(t.Context(), set("c")); err != nil {
		t.Error(err)
	}
	if err := kv.Flush(); err == nil {
		t.Error("a change was written that Badger refuses")
	}
	if err := kv.Update(t.Context(), set("behind")); err == nil {
		t.Error("a change was accepted behind one that was not written")
	}
	err := kv.View(t.Context(), func(tx metadata.KVTxn) (err error) {
		for _, key := range []string{"a", "b", "c"} {
			_, failed := tx.Get([]byte(key))
			err = errors.Join(err, failed)
		}
		return err
	})
	if err != nil {
		t.Errorf("what was accepted is not seen: %v", err)
	}
	next := openJournaled(t, copyOf(t, dir))
	if got := keysOf(t, next); got != "[a b c]" {
		t.Errorf("the next store has %s", got)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if err := kv.Close(); err == nil {
		t.Error("Close does not report it")
	}
}

// TestSoonIsWritten has changes that are written at once beside those that need not be. When they
// are over, none is left that waits for another change.
func TestSoonIsWritten(t *testing.T) {
	kv := open(t, t.TempDir())
	kv.FlushAfter(5*time.Millisecond, time.Millisecond)
	for range 30 {
		var all sync.WaitGroup
		for g := range 4 {
			all.Go(func() {
				for i := range 20 {
					update := kv.UpdateSoon
					if rand.IntN(4) == 0 {
						update = kv.Update
					}
					if err := update(t.Context(), func(tx metadata.KVTxn) error {
						return tx.Set(fmt.Appendf(nil, "%d-%d", g, i), []byte("set"))
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		kit.Eventually(t, time.Minute, func() bool { return !kv.Waits() })
	}
	if err := kv.Close(); err != nil {
		t.Error(err)
	}
}

// TestFullLayer has more changes than may wait: they are written before their time.
func TestFullLayer(t *testing.T) {
	kv := open(t, t.TempDir())
	kv.FlushAfter(time.Hour, time.Hour)
	for i := range 9 { // together a little more than flushBytes
		setLarge(t, kv, i, 700<<10)
	}
	kit.Eventually(t, time.Minute, func() bool { return !kv.Waits() })
	if got := keysOf(t, kv); got != "[0 1 2 3 4 5 6 7 8]" {
		t.Errorf("%s is there", got)
	}
	if err := kv.Close(); err != nil {
		t.Error(err)
	}
}

// TestRoomWhileWriting writes a large layer: other changes find room before all of it is written.
func TestRoomWhileWriting(t *testing.T) {
	kv := open(t, t.TempDir())
	kv.FlushAfter(time.Hour, time.Hour)
	for i := range 6 {
		setLarge(t, kv, i, 700<<10)
	}
	before, then, err := kv.FlushParts()
	if before < 6*700<<10 || then > before/2 || then == 0 || kv.UnderWay() != 0 {
		t.Errorf("%d bytes are under way before, %d before the last is settled, and %d at the end", before, then, kv.UnderWay())
	}
	if err = errors.Join(err, kv.Close()); err != nil {
		t.Error(err)
	}
}

// TestPause has many changes, and then none: they are written before their time. A few more wait for it.
func TestPause(t *testing.T) {
	kv := open(t, t.TempDir())
	kv.FlushAfter(time.Hour, time.Millisecond)
	setLarge(t, kv, 0, 1000<<10) // more than pauseBytes
	kit.Eventually(t, time.Minute, func() bool { return !kv.Waits() })
	setLarge(t, kv, 1, 700<<10)
	if d := kv.WaitsFor(); d != time.Hour {
		t.Errorf("a few changes wait for %v, not for others", d)
	}
	if got := keysOf(t, kv); got != "[0 1]" {
		t.Errorf("%s is there", got)
	}
	if err := kv.Close(); err != nil {
		t.Error(err)
	}
}

// setLarge sets a key to n bytes, to be written later.
func setLarge(t *testing.T, kv *badgerkv.KV, i, n int) {
	t.Helper()
	value := kit.Bytes(uint64(i), 0, n)
	if err := kv.UpdateSoon(t.Context(), func(tx metadata.KVTxn) error { return tx.Set(fmt.Appendf(nil, "%d", i), value) }); err != nil {
		t.Fatal(err)
	}
}

// keysOf lists the keys.
func keysOf(t *testing.T, kv *badgerkv.KV) string {
	t.Helper()
	var keys []string
	if err := kv.View(t.Context(), func(tx metadata.KVTxn) error {
		return tx.Scan(nil, nil, func(key, _ []byte) (bool, error) {
			keys = append(keys, string(key))
			return true, nil
		})
	}); err != nil {
		t.Error(err)
	}
	return fmt.Sprint(keys)
}

// allIsThere checks the data that a victim that reported a number must have left.
func allIsThere(tx metadata.KVTxn, said, ahead int) error {
	n, err := number(tx, 0)
	if err != nil {
		return err
	}
	if n < said || n > said+ahead {
		return fmt.Errorf("%d was committed, but %d is there", said, n)
	}
	for i := range pairs {
		var m int
		if m, err = number(tx, i); m != n || err != nil {
			return fmt.Errorf("key %d holds %d, but key 0 holds %d (%w)", i, m, n, err)
		}
	}
	logged := 0
	err = tx.Scan([]byte("log"), nil, func(key, _ []byte) (bool, error) {
		logged++
		if want := fmt.Sprintf("log%09d", logged); string(key) != want {
			return false, fmt.Errorf("found %s where %s should be", key, want)
		}
		return true, nil
	})
	if err == nil && logged != n {
		err = fmt.Errorf("%d of %d transactions are there", logged, n)
	}
	return err
}

// killVictim runs a victim, kills it after some lines, and returns the last number that it
// reported.
func killVictim(t *testing.T, dir string, lines int, env ...string) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^$")
	cmd.Env = append(append(os.Environ(), crashDir+"="+dir), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := 0
	for scan := bufio.NewScanner(out); scan.Scan(); lines-- {
		if last, err = strconv.Atoi(scan.Text()); err != nil {
			t.Fatalf("the victim says %q", scan.Text())
		}
		if lines == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(cmd.ProcessState.String(), "killed") {
		t.Fatalf("the victim ended with %v", cmd.ProcessState)
	}
	return last
}

// TestLockedByProcess opens a directory that another process has open, and again once that
// process has been killed.
func TestLockedByProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run", "^$")
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scan := bufio.NewScanner(out)
	scan.Scan() // it has committed something, so it has the lock
	_, err = badgerkv.Open(t.Context(), badgerkv.Options{Dir: dir})
	var locked *badgerkv.LockedError
	if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid {
		t.Errorf("Open = %v, want that process %d has it", err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for scan.Scan() {
	}
	_ = cmd.Wait() // reports that the process was killed
	if err := open(t, dir).Close(); err != nil {
		t.Error(err)
	}
}
