package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// programName is the name under which the test binary is this program.
const programName = "hmcfs-chaos"

func TestMain(m *testing.M) {
	mnt.Main(m, nil, map[string]func(){programName: main})
}

// TestShort attacks a static cluster and one with etcd, in parallel, for a short time. The
// choice of faults and the outcome of each operation are left open.
func TestShort(t *testing.T) {
	kit.Require(t, "root", "fuse", "tool:ip", "tool:nsenter", "tool:etcd")
	kit.Check(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip(err)
	}
	hmcfs, err := exec.LookPath("hmcfs") // this binary, under that name
	if err != nil {
		t.Fatal(err)
	}
	type end struct {
		mode string
		out  []byte
		err  error
	}
	ends := make(chan end)
	minutes := fmt.Sprintf("%.2f", float64(kit.Rounds(12, 12, 60))/60)
	attacks := map[string]string{"static": "7", "etcd": "11"}
	for mode, seed := range attacks {
		go func() {
			cmd := mnt.Itself(programName, "-mode", mode, "-seed", seed, "-minutes", minutes, "-hmcfs", hmcfs)
			cmd.Env = append(os.Environ(), "TMPDIR="+mnt.Base())
			out, failed := cmd.CombinedOutput()
			ends <- end{mode, out, failed}
		}()
	}
	for range attacks {
		e := <-ends
		if e.err != nil {
			t.Errorf("%s: %v\n%s", e.mode, e.err, e.out)
		} else if !bytes.Contains(e.out, []byte("no violation")) {
			t.Errorf("%s ends without a summary:\n%s", e.mode, e.out)
		}
	}
	left, err := filepath.Glob(filepath.Join(mnt.Base(), "hmcfs-chaos-*"))
	if err != nil || !t.Failed() && len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// TestInterrupted interrupts the program and checks that it ends what it has started and
// leaves nothing behind.
func TestInterrupted(t *testing.T) {
	kit.Require(t, "root", "fuse", "tool:ip", "tool:nsenter")
	kit.Check(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip(err)
	}
	hmcfs, err := exec.LookPath("hmcfs")
	if err != nil {
		t.Fatal(err)
	}
	base := mnt.TempDir(t)
	cmd := mnt.Itself(programName, "-mode", "static", "-seed", "3", "-minutes", "60", "-hmcfs", hmcfs)
	cmd.Env = append(os.Environ(), "TMPDIR="+base)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	p := make([]byte, 4096)
	for interrupted := false; ; {
		n, rerr := out.Read(p)
		told.Write(p[:n])
		if rerr != nil {
			break
		}
		if !interrupted && strings.Contains(told.String(), "over\n") {
			interrupted = true
			if err = cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	if err = cmd.Wait(); err == nil {
		t.Error("it ends well, though nothing is judged")
	}
	if !strings.Contains(told.String(), "static, seed 3\n") {
		t.Errorf("it ends without a summary:\n%s", told.String())
	}
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v\n%s", left, err, told.String())
	}
}
