package memfd

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

func blocks(t *testing.T, f *os.File) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestAllocate allocates files with room for them, and without.
func TestAllocate(t *testing.T) {
	const n = 40 << 20
	f, err := Create("test", n)
	if err != nil {
		t.Fatal(err)
	}
	if err = allocate(f, n); err != nil || blocks(t, f) != n {
		t.Errorf("%d bytes of %d are allocated, %v", blocks(t, f), n, err)
	}
	if err = errors.Join(Check(f, n), f.Close()); err != nil {
		t.Error(err)
	}
	root, err := mountNowhere("1M")
	if err != nil {
		t.Skip("can't mount a tmpfs: ", err)
	}
	s := Space{root: root}
	f, err = s.Create("test", n)
	if err == nil {
		if err = allocate(f, n); !errors.Is(err, devices.ErrOutOfMemory) || blocks(t, f) != 0 {
			t.Errorf("%d bytes are allocated, %v", blocks(t, f), err)
		}
		err = f.Close()
	} else if errors.Is(err, devices.ErrOutOfMemory) { // this kernel does not overcommit
		err = nil
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Error(err)
	}
}
