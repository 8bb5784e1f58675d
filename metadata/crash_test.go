package metadata_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// crashDir marks a test binary as the process to be killed.
const crashDir = "HMCFS_METADATA_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		fmt.Fprintln(os.Stdout, "error", victim(context.Background(), dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victim changes the tree until it is killed, and reports what it has done. Each round
// creates fileN, renames it to doneN and removes the one of ten rounds before.
func victim(ctx context.Context, dir string) error {
	kv, err := badgerkv.Open(ctx, badgerkv.Options{Dir: dir})
	if err != nil {
		return err
	}
	s, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		return err
	}
	dev, err := s.EnsureDevice(ctx, "sim0", 0o755, 0, 0)
	if err != nil {
		return err
	}
	sub, err := s.Create(ctx, dev.Ino, fmt.Sprintf("dir%d", s.NextIno()), dirNode())
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		file, done := fmt.Sprintf("file%d", i), fmt.Sprintf("done%d", i)
		in, err := s.Create(ctx, sub.Ino, file, benchFile())
		if err != nil {
			return err
		}
		if _, err := s.SaveContent(ctx, in.Ino, nil, bigMappings(i%5)); err != nil {
			return err
		}
		r := metadata.Rename{From: sub.Ino, Name: file, To: sub.Ino, NewName: done}
		if _, err := s.Rename(ctx, r); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "done", sub.Ino, i, in.Ino)
		if i < 10 {
			continue
		}
		if _, err := s.Unlink(ctx, sub.Ino, fmt.Sprintf("done%d", i-10)); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "gone", sub.Ino, i-10, 0)
	}
}

// claims are the statements of a victim before its death.
type claims struct {
	dir     metadata.Ino
	done    map[int]metadata.Ino
	gone    map[int]bool
	highest metadata.Ino
}

// killVictim runs a victim, and kills it once it has printed enough lines.
func killVictim(t *testing.T, dir string, lines int) claims {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^$")
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := claims{done: map[int]metadata.Ino{}, gone: map[int]bool{}}
	for scan := bufio.NewScanner(out); scan.Scan(); lines-- {
		var word string
		var i int
		var ino metadata.Ino
		if _, err := fmt.Sscan(scan.Text(), &word, &c.dir, &i, &ino); err != nil {
			t.Fatalf("the victim says %q", scan.Text())
		}
		if word == "done" {
			c.done[i] = ino
			c.highest = max(c.highest, ino)
		} else {
			c.gone[i] = true
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
	return c
}

// verify compares the statements of a victim with the store.
func (c *claims) verify(t *testing.T, s *metadata.Store) {
	t.Helper()
	ctx := t.Context()
	if s.NextIno() <= c.highest {
		t.Errorf("inode %d would be given again: %d was in use", s.NextIno(), c.highest)
	}
	last := -1
	for i, ino := range c.done {
		last = max(last, i)
		in, err := s.Lookup(ctx, c.dir, fmt.Sprintf("done%d", i))
		if c.gone[i] {
			if !errors.Is(err, metadata.ErrNotExist) {
				t.Errorf("done%d was removed, but Lookup = %v", i, err)
			}
			continue
		}
		if errors.Is(err, metadata.ErrNotExist) && c.done[i+10] != 0 {
			continue // removal was in progress when the process was killed
		}
		if err != nil || in.Ino != ino {
			t.Errorf("done%d is inode %d, %v, want %d", i, in.Ino, err, ino)
			continue
		}
		maps, err := s.Mappings(ctx, ino)
		if err != nil || len(maps) != i%5 {
			t.Errorf("done%d has %d mappings, %v, want %d", i, len(maps), err, i%5)
		}
	}
	entries, err := s.ReadDir(ctx, c.dir, 0, 1000)
	if err != nil || len(entries) > 13 {
		t.Errorf("the directory has %d entries, %v", len(entries), err)
	}
	for _, e := range entries {
		var i int
		if _, err := fmt.Sscanf(e.Name, "done%d", &i); err == nil && i > last+3 {
			t.Errorf("%s is far beyond the last that was said to be done, %d", e.Name, last)
		}
	}
}

// TestKilled kills a process that works on a store with SIGKILL, several times on one
// store: everything that it reported as done is there, nothing beyond the operation in
// progress, and the tree is consistent.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		c := killVictim(t, dir, 1+rand.IntN(20_000))
		s, err := metadata.Open(t.Context(), openBadger(t, dir), metadata.Options{})
		if err != nil {
			t.Fatal(err)
		}
		checkClean(t, s)
		c.verify(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}
