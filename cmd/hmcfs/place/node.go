package place

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// NodeFile returns the path of the file that stores the identity of the mount as a node.
func (p Paths) NodeFile() string { return filepath.Join(p.State, "node.json") }

// NodeSocket returns the path at which nodes of this machine connect to a node. The rank in
// the name distinguishes nodes on different machines whose directories have the same names.
func (p Paths) NodeSocket(rank uint32) string {
	return filepath.Join(p.Runtime, fmt.Sprintf("node-%08x.sock", rank))
}

// CleanNodeSocket removes the node socket, which a killed node leaves behind.
func (p Paths) CleanNodeSocket(rank uint32) { _ = os.Remove(p.NodeSocket(rank)) }

// IsSocketPath reports whether a path is short enough for a socket.
func IsSocketPath(path string) bool { return len(path) <= longestSocket }

// Node is the identity of a mount as a node of a cluster: it outlives the daemon and the
// mount, as long as the state directory exists.
type Node struct {
	// ID distinguishes it from any other mount with the same node name.
	ID string `json:"id"`
	// Epoch is the epoch of its last run, and Life counts the daemons that have continued it.
	Epoch uint64 `json:"epoch"`
	Life  uint64 `json:"life,omitempty"`
	// Memory has the epochs of the devices' memory in that run, by device.
	Memory map[string]uint64 `json:"memory,omitempty"`
}

// idBytes is the number of random bytes of an ID.
const idBytes = 16

// ReadNode returns the stored identity of the mount, or a new one.
func (p Paths) ReadNode() (Node, error) {
	var n Node
	text, err := os.ReadFile(p.NodeFile())
	if errors.Is(err, fs.ErrNotExist) {
		var id [idBytes]byte
		_, _ = rand.Read(id[:]) // it never fails
		n.ID = hex.EncodeToString(id[:])
		return n, p.WriteNode(n)
	}
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	if err == nil && n.ID == "" {
		err = errors.New("it has no id")
	}
	if err != nil {
		return n, fmt.Errorf("node's identity in %s: %w; remove it to become a new node", p.NodeFile(), err)
	}
	return n, nil
}

// WriteNode stores the identity, atomically.
func (p Paths) WriteNode(n Node) error {
	text, err := json.Marshal(n)
	if err == nil {
		err = os.WriteFile(p.NodeFile()+".new", append(text, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(p.NodeFile()+".new", p.NodeFile())
	}
	if err != nil {
		return fmt.Errorf("keep the node's identity: %w", err)
	}
	return nil
}
