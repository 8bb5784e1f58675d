package etcdkit

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestCluster kills the leader, waits for the election of another one, and lets a member
// join again without its data.
func TestCluster(t *testing.T) {
	kit.Require(t, "tool:etcd")
	kit.Check(t)
	var all []Options
	for i := range 3 { // addresses that no concurrent run uses
		pid := os.Getpid()
		all = append(all, Options{Host: fmt.Sprintf("127.%d.%d.%d", 1+pid>>8&0x7f, pid&0xff, 1+i)})
	}
	c, err := NewCluster(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	led := func() *Server {
		var leader *Server
		kit.Eventually(t, startTimeout, func() error {
			if leader = c.Leader(t.Context()); leader == nil {
				return errors.New("nobody leads")
			}
			return nil
		})
		return leader
	}
	first := led()
	first.Stop()
	if second := led(); second == first {
		t.Error("a member that was killed leads")
	}
	if err := first.Continue(t.Context()); err != nil {
		t.Error(err)
	}
	for _, s := range c.Servers[:2] {
		if err := c.Rejoin(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	led()
}
