package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// programName is the name under which the test binary is this program.
const programName = "hmcfs-attack"

func TestMain(m *testing.M) {
	mnt.Main(m, nil, map[string]func(){programName: main})
}

// TestShort attacks for a few seconds. The durations of operations are reported, but not
// checked.
func TestShort(t *testing.T) {
	kit.Require(t, "root", "fuse", "tool:ip", "tool:nsenter")
	kit.Check(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip(err)
	}
	hmcfs, err := exec.LookPath("hmcfs") // this binary, under that name
	if err != nil {
		t.Fatal(err)
	}
	minutes := fmt.Sprintf("%.3f", float64(kit.Rounds(3, 4, 30))/60)
	cmd := mnt.Itself(programName, "-ratio", "0", "-seed", "5", "-minutes", minutes, "-slack", "2m", "-hmcfs", hmcfs)
	cmd.Env = append(os.Environ(), "TMPDIR="+mnt.Base())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if !bytes.Contains(out, []byte("no violation")) {
		t.Errorf("it ends without a summary:\n%s", out)
	}
	left, err := filepath.Glob(filepath.Join(mnt.Base(), "hmcfs-attack-*"))
	if err != nil || !t.Failed() && len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
