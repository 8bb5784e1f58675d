package cluster

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/memfd"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
)

// keptName is the name under which a DescriptorStore has the incarnations.
const keptName = "nodes/incarnations"

// keptEntry is the size of an entry of the file, which is that of the incarnation with its number as
// index: its epoch, its generation, 1 if it is held, the length of the node's name, and the name. It is
// written whole before the kernel learns a number with the index.
const (
	keptEntry    = 96
	keptNameAt   = 18
	keptNameSize = keptEntry - keptNameAt
	keptSize     = maxIncarnations * keptEntry
)

// keptIncarnations is a file in memory with the incarnations that the kernel knows numbers of, for the
// daemon that follows this one.
type keptIncarnations struct{ file *os.File }

// Keep makes the numbers of other nodes' inodes outlive this process. With resume they are those that
// an earlier one has left. It is called once, before any other method.
func (m *Mesh) Keep(k devices.DescriptorStore, resume bool) error {
	if resume {
		found, err := k.Kept(keptName)
		if err != nil {
			return err
		}
		if file := found[keptName]; file != nil {
			m.others.kept = &keptIncarnations{file}
			return m.revive()
		}
	}
	file, err := memfd.Create("hmcfs-nodes", keptSize)
	if err != nil {
		return err
	}
	m.others.kept = &keptIncarnations{file}
	return k.Keep(keptName, file)
}

// Close releases what Keep has opened.
func (m *Mesh) Close() error {
	if m.others.kept == nil {
		return nil
	}
	return m.others.kept.file.Close()
}

// revive continues with the incarnations that an earlier process has left. How many references the
// kernel has to inodes of them is unknown, so their indices are not assigned again.
func (m *Mesh) revive() error {
	all := &m.others
	entries := make([]byte, keptSize)
	if _, err := all.kept.file.ReadAt(entries, 0); err != nil {
		return fmt.Errorf("read the nodes of the earlier process: %w", err)
	}
	var found []*incarnation
	for index := range objects.Ino(maxIncarnations) {
		entry := entries[index*keptEntry:][:keptEntry]
		name := members.Name(entry[keptNameAt:][:min(int(entry[keptNameAt-1]), keptNameSize)])
		if name.Validate() != nil {
			continue // an index that was not assigned
		}
		epoch := binary.LittleEndian.Uint64(entry)
		n := &incarnation{
			Node:  m.cluster.known(members.Record{Name: name, Epoch: members.Epoch(epoch), Held: entry[keptNameAt-2] == 1}),
			index: index, gen: metadata.Generation(binary.LittleEndian.Uint64(entry[8:])), kept: all.kept,
		}
		n.refs.Store(math.MaxInt64 / 2)
		n.recorded.Store(epoch + 1)
		found = append(found, n)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.byNode, all.byIndex = map[*Node]*incarnation{}, map[objects.Ino]*incarnation{}
	for _, n := range found {
		all.byIndex[n.index], all.last = n, n.index
		if !n.replaced.Load() {
			all.byNode[n.Node] = n
		}
	}
	return nil
}

// keep records the incarnation, unless it is recorded with its epoch.
func (n *incarnation) keep() error {
	if n.kept == nil {
		return nil
	}
	epoch := uint64(n.Record().Epoch)
	if n.recorded.Load() == epoch+1 {
		return nil
	}
	entry := make([]byte, keptEntry)
	binary.LittleEndian.PutUint64(entry, epoch)
	binary.LittleEndian.PutUint64(entry[8:], uint64(n.gen))
	if n.Record().Held {
		entry[keptNameAt-2] = 1
	}
	entry[keptNameAt-1] = byte(copy(entry[keptNameAt:], n.name))
	if _, err := n.kept.file.WriteAt(entry, int64(n.index)*keptEntry); err != nil {
		return fmt.Errorf("keep the number of node %s: %w", n.name, err)
	}
	n.recorded.Store(epoch + 1)
	return nil
}
