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

// NodeFile keeps who the mount is among other machines.
func (p Paths) NodeFile() string { return filepath.Join(p.State, "node.json") }

// NodeSocket returns the path at which nodes of this machine connect to a node. The name tells
// nodes apart that have the same directories on different machines.
func (p Paths) NodeSocket(rank uint32) string {
	return filepath.Join(p.Runtime, fmt.Sprintf("node-%08x.sock", rank))
}

// CleanNodeSocket removes it; a node that was killed leaves it.
func (p Paths) CleanNodeSocket(rank uint32) { _ = os.Remove(p.NodeSocket(rank)) }

// IsSocketPath says whether a path is short enough for a socket.
func IsSocketPath(path string) bool { return len(path) <= longestSocket }

// Node is the identity of a mount among other machines: it outlives the daemon and the
// mount, as long as the state directory does.
type Node struct {
	// ID tells it from any other mount of the same node name.
	ID string `json:"id"`
	// Epoch is that of its last time.
	Epoch uint64 `json:"epoch"`
}

// idBytes is the number of random bytes of an ID.
const idBytes = 16

// ReadNode returns who the mount was the last time, or makes somebody new.
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

// WriteNode keeps it, whole or not at all.
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
