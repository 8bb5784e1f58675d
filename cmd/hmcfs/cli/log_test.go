package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestLogRotates writes a log that exceeds its limit, from several goroutines at once.
func TestLogRotates(t *testing.T) {
	kit.Check(t)
	const limit, writers, lines = 1 << 10, 4, 100
	path := filepath.Join(t.TempDir(), "hmcfs.log")
	f, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	log := rotateLog(f, limit)
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for i := range lines {
				if _, err := fmt.Fprintf(log, "writer %d line %03d\n", w, i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".1"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 || len(data) > limit || len(data)%len("writer 0 line 000\n") != 0 {
			t.Errorf("%s has %d bytes, want whole lines and no more than %d", name, len(data), limit)
		}
		if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", name, st.Mode(), err)
		}
	}
	data, _ := os.ReadFile(path)
	if !strings.Contains(string(data), fmt.Sprintf("line %03d\n", lines-1)) {
		t.Errorf("the last lines are not in %s", path)
	}
}

// TestLogThatCannotRotate continues a log whose directory was removed, and one that is not
// a regular file.
func TestLogThatCannotRotate(t *testing.T) {
	kit.Check(t)
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "log"), os.DevNull} {
		f, err := openLog(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		log := rotateLog(f, 10)
		for range 5 {
			if _, err := log.Write([]byte("a message\n")); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}
