package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/standin"
)

// onCUDA runs the suite against the stand-in for NVIDIA's driver: there, too, hmcfs and the
// independent program are separate processes.
func onCUDA(t *testing.T, dir string) {
	t.Helper()
	seen(t, "../standin")
	lib := "LD_LIBRARY_PATH=" + standin.Library(t, "cuda", "libcuda.so.1")
	t.Run("everything", func(t *testing.T) {
		said := runs(t, dir, 0, []string{lib}, "--quick")
		passes(t, said, "conformance of the device, without a mount",
			"two processes share memory without hmcfs: ipc", "two processes share memory without hmcfs: vmm-fd",
			"cp in, cp inside the device, mv to the host tier, cp out", "two daemons on one device",
			"kill -9 of the daemon: files on the device go on",
			"more than the device has is ENOSPC, the log says why, and files live on")
		for _, way := range []string{" (host, memfd)", " (cuda0, ipc)", " (cuda0, vmm-fd)"} {
			passes(t, said, sharingRows(way)...)
		}
		// The stand-in has no kernels of 16-bit types.
		has(t, said, "THE DRIVER REFUSED KERNELS of ", "of cuMemcpyDtoD", "of cuMemcpyHtoD", "of cuMemcpyDtoH", "first byte by a handle, independent of the size",
			" 0 failed")
	})
	t.Run("a driver without a card", func(t *testing.T) {
		has(t, runs(t, dir, exitNoDevice, []string{lib, "HMCFS_STANDIN_DEVICES=0"}, "--quick"), "cuda0: no such device here", "cuda: ")
	})
	t.Run("a card for one process", func(t *testing.T) {
		control := filepath.Join(t.TempDir(), "control")
		if err := os.WriteFile(control, []byte("mode=3\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		has(t, runs(t, dir, exitUntested, []string{lib, "HMCFS_STANDIN_CONTROL=" + control}, "--quick"), `cuda0: not tested: its compute mode is "exclusive process"`, "nvidia-smi -i 0 -c DEFAULT")
	})
}

// sharingRows returns the rows of one way to share memory.
func sharingRows(way string) []string {
	return []string{
		"bind: another process's memory is the file, both ways" + way,
		"export: another process has the file's memory, both ways" + way,
		"the owner is killed in mid-read: EIO, lost, nothing hangs" + way,
		"what can't be bound is refused" + way,
		"strangers can't bind and export" + way,
	}
}

// passes fails the test for every row that a report does not list as passed.
func passes(t *testing.T, report string, rows ...string) {
	t.Helper()
	for _, want := range rows {
		found := false
		for line := range strings.Lines(report) {
			found = found || strings.HasPrefix(line, "| "+want+" | ") && strings.HasSuffix(line, "| ok |\n")
		}
		if !found {
			t.Errorf("%q did not pass in\n%s", want, report)
		}
	}
}
