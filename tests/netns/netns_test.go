package netns

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// The two reach each other by every name, and no longer when the cable is
// pulled; outside nothing is seen of them.
func TestCable(t *testing.T) {
	kit.Require(t, "root", "tool:ip", "tool:nsenter")
	kit.Check(t)
	outside, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	if now, err := os.ReadFile("/etc/hosts"); err != nil || string(now) != string(outside) {
		t.Errorf("the hosts outside are %q, %v", now, err)
	}
	for _, want := range []string{c.Right.IPv4, c.Right.IPv6} {
		out, err := c.Left.Command(t.Context(), "getent", "ahosts", c.Right.Name).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s is %q, %v; want %s", c.Right.Name, out, err, want)
		}
	}
	link := func() string {
		out, err := c.Left.Command(t.Context(), "ip", "-o", "link", "show", device).CombinedOutput()
		if err != nil {
			t.Error(err)
		}
		return string(out)
	}
	if got := link(); !strings.Contains(got, "LOWER_UP") {
		t.Errorf("the cable: %s", got)
	}
	if err := c.Right.Pull(t.Context()); err != nil {
		t.Error(err)
	}
	if got := link(); strings.Contains(got, "LOWER_UP") {
		t.Errorf("the cable that was pulled: %s", got)
	}
	if err := c.Right.Plug(t.Context()); err != nil {
		t.Error(err)
	}
	kit.Eventually(t, 5*time.Second, func() bool { return strings.Contains(link(), "LOWER_UP") })
}
