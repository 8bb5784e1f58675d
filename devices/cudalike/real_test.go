package cudalike

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestRealHIP loads the distribution's own libamdhip64 in a process of its own: without a
// card it must report that, and nothing else, and the process must go on.
func TestRealHIP(t *testing.T) {
	kit.Require(t, "hip")
	v := vendors()[0]
	out, err := v.process(t, "TestRealHIPAlone", "HMCFS_VENDOR_REAL=1", familyEnv+"=")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || lines[1] != "PASS" {
		t.Fatalf("it prints by itself: %q", lines)
	}
	t.Log(lines[0])
	if !strings.HasPrefix(lines[0], "found ") && !strings.Contains(lines[0], " finds no AMD or Hygon device: hipGetDeviceCount: hipErrorNoDevice (100)") {
		t.Errorf("it says %q", lines[0])
	}
}

// TestRealHIPAlone prints the result of Discover.
func TestRealHIPAlone(t *testing.T) {
	if os.Getenv("HMCFS_VENDOR_REAL") == "" {
		t.Skip("runs in a process of its own only")
	}
	d := NewHIP(Options{})
	found, err := d.Discover(t.Context())
	if err == nil {
		fmt.Fprintf(os.Stdout, "found %d\n", len(found))
		return
	}
	if _, again := d.Discover(t.Context()); again == nil || again.Error() != err.Error() {
		t.Errorf("%v, then %v", err, again)
	}
	fmt.Fprintln(os.Stdout, err)
}
