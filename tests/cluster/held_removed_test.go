package cluster

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestHeldRemoved removes files of a node whose daemon has just been started again, before another node, which has them
// open, has connected: they stay until it closes them.
func TestHeldRemoved(t *testing.T) {
	h := newHeld(t, worldOptions{machines: 2})
	devices := []string{"host", "sim0"}
	data := kit.Bytes(1, 0, 300_000)
	files := map[string]*os.File{}
	for _, device := range devices {
		must(t, kit.WriteNew(h.b.Path(device, "f"), data))
		f, err := os.Open(h.a.at("b", device, "f"))
		must(t, err)
		defer func() { _ = f.Close() }() // again, unless the test has failed
		files[device] = f
	}
	away := h.a.Living()
	must(t, unix.Kill(away, unix.SIGSTOP))
	defer func() { _ = unix.Kill(away, unix.SIGCONT) }()
	for range 2 { // the first one has not met the other node either
		pid := h.kill(h.b, 0)
		kit.Eventually(t, patience, func() error {
			if now := h.b.Living(); now == 0 || now == pid {
				return fmt.Errorf("no daemon follows %d", pid)
			}
			_, err := h.b.Client().Version(t.Context())
			return err
		})
	}
	for _, device := range devices {
		must(t, os.Remove(h.b.Path(device, "f")))
	}
	must(t, unix.Kill(away, unix.SIGCONT))
	for _, device := range devices {
		got := make([]byte, len(data))
		if _, err := files[device].ReadAt(got, 0); err != nil {
			t.Errorf("%s: %v", device, err)
		} else if err = kit.Same(device, got, data); err != nil {
			t.Error(err)
		}
		must(t, files[device].Close())
	}
	h.checkEnd()
}
