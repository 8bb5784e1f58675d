package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// heldCardSize is the memory of each card: several slabs, of which each is less than a large file.
const heldCardSize = 256 * devices.MiB

// large makes, overwrites, reads and removes a file that is larger than a slab.
func (w *heldUser) large() error {
	const size = 21<<20 + 4321
	name := filepath.Join(w.dir, "file")
	data := w.fresh(size)
	if err := kit.WriteNew(name, data); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	off, piece := w.rng.IntN(size-3<<20), w.fresh(3<<20)
	copy(data[off:], piece)
	_, err = f.WriteAt(piece, int64(off))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	got, err := os.ReadFile(name)
	return errors.Join(err, kit.Same(name, got, data), os.Remove(name))
}

// importFails has the driver refuse the memory that was kept of one card, as after a reset.
func (h *held) importFails(cards standInCards, settings string) {
	h.t.Helper()
	lost, kept := h.m.Path("cuda0", "lost"), h.m.Path("cuda1", "kept")
	data := kit.Bytes(9, 0, 3<<20)
	must(h.t, errors.Join(os.WriteFile(lost, data, 0o600), os.WriteFile(kept, data, 0o600)))
	const invalidValue = 1
	cards.set(h.t, settings, fmt.Sprintf("fail=cuMemImportFromShareableHandle:1:%d:0", invalidValue))
	h.kill()
	if _, err := os.ReadFile(lost); !errors.Is(err, unix.EIO) {
		h.t.Errorf("a file whose memory can't be imported: %v", err)
	}
	if state, err := getXattr(lost, "user.hmc.state"); err != nil || state != "lost" {
		h.t.Errorf("its state is %q, %v", state, err)
	}
	got, err := os.ReadFile(kept)
	must(h.t, errors.Join(err, kit.Same(kept, got, data)))
	const why = "device memory of an earlier process can't be used; its objects are lost"
	if log := h.m.Log(); !strings.Contains(log, why) || !strings.Contains(log, "the descriptor does not refer to memory of a card") {
		h.t.Error("the log does not say why files are lost")
	}
	cards.set(h.t, settings)
	again := h.m.Path("cuda0", "again")
	must(h.t, os.WriteFile(again, data, 0o600))
	program, err := exec.LookPath("hmcfs")
	must(h.t, err)
	out, err := h.m.Run("upgrade", "--program", program, h.m.Dir) // the daemon ends in order
	if err != nil {
		h.t.Fatalf("upgrade: %v\n%s", err, out)
	}
	got, err = os.ReadFile(again)
	must(h.t, errors.Join(err, kit.Same(again, got, data), os.Remove(lost), os.Remove(again), os.Remove(kept)))
}

// unused returns an error while any process has memory of a card that could be exported.
func (c standInCards) unused() error {
	marks, err := filepath.Glob(filepath.Join(filepath.Dir(c.control), "memory", "*"))
	if err != nil || len(marks) == 0 {
		return errors.Join(err, errors.New("no memory of a card could ever be exported"))
	}
	for _, mark := range marks {
		f, err := os.Open(mark)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return fmt.Errorf("memory of a card is in use: %s: %w", filepath.Base(mark), err)
		}
	}
	return nil
}
