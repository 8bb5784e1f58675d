package tests

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestFullCard requests more memory from a card than it has: the log has the requested and the
// free size, and a failed call has allocated nothing.
func TestFullCard(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{Devices: []string{"sim:0,size=64MiB"}})
	f, err := os.Create(m.Path("sim0", "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, mode := range []uint32{0, unix.FALLOC_FL_KEEP_SIZE} {
		wantErrno(t, fallocate(f, mode, 0, 1<<40), unix.ENOSPC)
		st := fstat(t, f)
		if used := m.Device("sim0").Used; used != 0 || st.Size != 0 || st.Blocks != 0 {
			t.Errorf("mode %d: after the failure %d bytes of the device are used; size %d, %d blocks", mode, used, st.Size, st.Blocks)
		}
	}
	must(t, fallocate(f, 0, 0, 64<<20))
	_, err = f.WriteAt(kit.Bytes(1, 0, 100<<10), 64<<20)
	wantErrno(t, err, unix.ENOSPC)
	for _, want := range []string{
		"sim0: out of memory: 1.0 TiB asked, 64.0 MiB free",
		"sim0: out of memory: 100.0 KiB asked, 0 B free",
	} {
		if log := m.Log(); !strings.Contains(log, want) {
			t.Errorf("the log has no %q", want)
		}
	}
}
