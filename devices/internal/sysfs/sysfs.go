package sysfs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
)

// Root is the directory at which the kernel mounts sysfs.
const Root = "/sys"

// NUMANode returns the host's NUMA node that a PCI device ("0000:65:00.0") is attached to,
// according to the tree at root; -1 if unknown.
func NUMANode(root, pci string) int {
	if pci == "" {
		return -1
	}
	text, err := os.ReadFile(filepath.Join(root, "bus/pci/devices", pci, "numa_node"))
	if err != nil {
		return -1
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return -1
	}
	return node
}

// MemInfo returns the kernel's memory statistics by name ("MemAvailable"), from a file in
// the format of /proc/meminfo.
func MemInfo(path string) (map[string]devices.Size, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := map[string]devices.Size{}
	for line := range strings.Lines(string(text)) {
		name, amount, _ := strings.Cut(line, ":")
		kib, is := strings.CutSuffix(strings.TrimSpace(amount), " kB")
		if n, err := strconv.ParseUint(kib, 10, 64); is && err == nil {
			all[name] = devices.Size(n) * devices.KiB
		}
	}
	return all, nil
}
