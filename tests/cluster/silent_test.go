package cluster

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestStoppedPeer stops the daemon of a node, which keeps its connections. Requests that wait
// for it fail, later ones fail without waiting, `hmcfs nodes` reports since when, and when the
// daemon continues everything is as before.
func TestStoppedPeer(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{machines: 2})
	a, b := nodes[0], nodes[1]
	const files = 64
	for i := range files {
		write(t, b.Path("host", fmt.Sprint("x", i)), uint64(i), 5000)
	}
	must(t, a.reaches("b"))
	proceed := kit.Stop(t, b.PID())
	stat := func(i int) error { _, err := os.Stat(a.at("b", "host", fmt.Sprint("x", i))); return err }
	// The kernel looks up paths that have a directory in common one after the other, so if
	// each waited separately, this would take minutes.
	must(t, soon(t, "stat", func() error {
		done := make(chan error)
		for i := range files {
			go func() { done <- stat(i) }()
		}
		var wrong []error
		for range files {
			if err := <-done; !among(err, syscall.EHOSTUNREACH, syscall.ETIMEDOUT) {
				wrong = append(wrong, fmt.Errorf("stat of a node that is stopped: %w", err))
			}
		}
		return errors.Join(wrong...)
	}))
	must(t, soon(t, "further calls", func() error {
		for i := range 20 * files {
			if err := stat(i % files); !errors.Is(err, syscall.EHOSTUNREACH) {
				return fmt.Errorf("stat of a node that is known to be stopped: %w", err)
			}
		}
		return nil
	}))
	known := a.cluster().Nodes[0]
	if known.Connected || !strings.Contains(known.Problem, "no answer since 2") {
		t.Errorf("hmcfs nodes: %+v", known)
	}
	write(t, a.Path("host", "meanwhile"), 7, mib)
	proceed()
	kit.Eventually(t, patience, func() error { return check(a.at("b", "host", "x1"), 1, 5000) })
	if known = a.cluster().Nodes[0]; !known.Connected || known.Problem != "" {
		t.Errorf("hmcfs nodes afterwards: %+v", known)
	}
	// b was stopped all the time, and detects no fault in a.
	kit.Eventually(t, patience, func() error { return check(b.at("a", "host", "meanwhile"), 7, mib) })
}
