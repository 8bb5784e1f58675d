package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
	"github.com/hmcfs/hmcfs/tests/standin"
)

const vendorShareSize = 1<<20 + 4321

// onVendors runs a test on the first card of every vendor; program is a C program that uses
// the vendor's runtime directly.
func onVendors(t *testing.T, fn func(t *testing.T, m *mnt.M, family, program string)) {
	t.Helper()
	kit.Check(t)
	standins(t)
	program := standin.Program(t, "vendoruser")
	m := mnt.Mount(t, mnt.Options{Found: true})
	for _, family := range []string{"hip", "mlu", "musa", "npu"} {
		t.Run(family, func(t *testing.T) { fn(t, m, family, program) })
	}
}

// TestVendorProgramsSeeFiles exports a file: a program that uses only the vendor's runtime
// reads what was written through the mount, and the reverse.
func TestVendorProgramsSeeFiles(t *testing.T) {
	onVendors(t, func(t *testing.T, m *mnt.M, family, program string) {
		f := m.Path(family+"0", "shared")
		create(t, f, 5, vendorShareSize)
		out, err := m.Run("export", "--json", f)
		must(t, err)
		var named share.Memory
		must(t, json.Unmarshal([]byte(out), &named))
		if len(named.Pieces) != 1 || string(named.Family) != family || named.Size != vendorShareSize || named.Pieces[0].Offset != 0 {
			t.Fatalf("export says %s", out)
		}
		size := fmt.Sprint(vendorShareSize)
		read := exec.Command(program, family, "read", named.Pieces[0].Handle, size)
		read.Stderr = os.Stderr
		got, err := read.Output()
		must(t, err)
		if i := kit.DiffAt(got, 5, 0); i >= 0 || len(got) != vendorShareSize {
			t.Errorf("the program reads %d bytes, another one at %d", len(got), i)
		}
		write := exec.Command(program, family, "write", named.Pieces[0].Handle, size)
		write.Stdin, write.Stderr = bytes.NewReader(kit.Bytes(6, 0, vendorShareSize)), os.Stderr
		must(t, write.Run())
		wantContent(t, f, 6, vendorShareSize)
		wantErrno(t, unix.Truncate(f, 10), unix.EBUSY)
		_, err = m.Run("export", "--end", f)
		must(t, err)
		must(t, os.Remove(f))
	})
}

// vendorOwner is a program that owns memory of a card.
type vendorOwner struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	handle string
}

func newVendorOwner(t *testing.T, program, family string, seed uint64) *vendorOwner {
	t.Helper()
	o := &vendorOwner{cmd: exec.Command(program, family, "own", fmt.Sprint(vendorShareSize))}
	o.cmd.Stderr = os.Stderr
	var err error
	o.stdin, err = o.cmd.StdinPipe()
	must(t, err)
	out, err := o.cmd.StdoutPipe()
	must(t, err)
	must(t, o.cmd.Start())
	t.Cleanup(func() { _ = o.kill() })
	_, err = o.stdin.Write(kit.Bytes(seed, 0, vendorShareSize))
	must(t, err)
	o.stdout = bufio.NewReader(out)
	line, err := o.stdout.ReadString('\n')
	must(t, err)
	o.handle = strings.TrimSpace(line)
	return o
}

// kill kills the program, unless it has ended.
func (o *vendorOwner) kill() error {
	if o.cmd.ProcessState != nil {
		return nil
	}
	_ = o.stdin.Close()
	if err := o.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = o.cmd.Wait() // it was killed
	return nil
}

// bind binds the owner's memory to the file.
func (o *vendorOwner) bind(t *testing.T, path, family string) {
	t.Helper()
	piece := fmt.Sprintf(`{"kind":"ipc","handle":%q,"offset":0,"size":%d,"allocation":%d}`, o.handle, vendorShareSize, vendorShareSize)
	bindFile(t, path, bindValue(family, o.cmd.Process.Pid, piece))
	wantXattr(t, path, "user.hmc.state", "bound")
}

// TestVendorProgramsBecomeFiles binds memory of a program that uses only the vendor's runtime;
// when it ends, the file is lost.
func TestVendorProgramsBecomeFiles(t *testing.T) {
	onVendors(t, func(t *testing.T, m *mnt.M, family, program string) {
		o := newVendorOwner(t, program, family, 7)
		f := m.Path(family+"0", "bound")
		o.bind(t, f, family)
		wantContent(t, f, 7, vendorShareSize)
		_, err := m.Run("cp", f, m.Path("host", family))
		must(t, err)
		wantContent(t, m.Path("host", family), 7, vendorShareSize)
		h := open(t, f, os.O_RDWR)
		_, err = h.WriteAt(kit.Bytes(8, 0, vendorShareSize), 0)
		must(t, err)
		must(t, h.Close())
		must(t, os.Remove(f))
		must(t, o.stdin.Close())
		got, err := io.ReadAll(o.stdout)
		must(t, err)
		must(t, o.cmd.Wait())
		if i := kit.DiffAt(got, 8, 0); i >= 0 || len(got) != vendorShareSize {
			t.Errorf("the owner has %d bytes, another one at %d", len(got), i)
		}

		second := newVendorOwner(t, program, family, 9)
		second.bind(t, f, family)
		must(t, second.kill())
		kit.Eventually(t, 20*time.Second, func() bool { // a read detects it at the latest
			_, rerr := os.ReadFile(f)
			state, serr := getxattr(f, "user.hmc.state")
			return rerr != nil && serr == nil && state == "lost"
		})
		_, err = os.ReadFile(f)
		wantErrno(t, err, unix.EIO)
		must(t, os.Remove(f))
	})
}
