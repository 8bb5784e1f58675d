package sysfs

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNUMANode(t *testing.T) {
	root := t.TempDir()
	for pci, text := range map[string]string{"0000:65:00.0": "1\n", "0000:66:00.0": "none", "0000:67:00.0": "-1\n"} {
		dir := filepath.Join(root, "bus/pci/devices", pci)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "numa_node"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pci, want := range map[string]int{
		"0000:65:00.0": 1, "0000:66:00.0": -1, "0000:67:00.0": -1, "0000:68:00.0": -1, "": -1,
	} {
		if got := NUMANode(root, pci); got != want {
			t.Errorf("%q is on node %d, want %d", pci, got, want)
		}
	}
}
