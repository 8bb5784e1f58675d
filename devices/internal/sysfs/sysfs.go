package sysfs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Root is the directory in which the kernel shows it.
const Root = "/sys"

// NUMANode is the node of the host that a PCI device ("0000:65:00.0") hangs
// on, as the tree at root has it; -1 where that is unknown.
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
