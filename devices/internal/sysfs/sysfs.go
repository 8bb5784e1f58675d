package sysfs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
