package metadata_test

import (
	"cmp"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
)

func (n *modelNode) setMaps(mapped []metadata.Mapping) {
	n.maps = slices.Clone(mapped)
	slices.SortFunc(n.maps, func(a, b metadata.Mapping) int { return cmp.Compare(a.FileOff, b.FileOff) })
}

func (m *model) setXattr(ino metadata.Ino, name, value string, flags metadata.XattrFlags) error {
	n, err := m.node(ino)
	if err != nil {
		return err
	}
	_, exists := n.xattrs[name]
	switch {
	case exists && flags == metadata.XattrCreate:
		return metadata.ErrExist
	case !exists && flags == metadata.XattrReplace:
		return metadata.ErrNoXattr
	}
	n.xattrs[name] = value
	n.in.Ctime = m.now
	return nil
}

func (m *model) removeXattr(ino metadata.Ino, name string) error {
	n, err := m.node(ino)
	if err != nil {
		return err
	}
	if _, exists := n.xattrs[name]; !exists {
		return metadata.ErrNoXattr
	}
	delete(n.xattrs, name)
	n.in.Ctime = m.now
	return nil
}

func (m *model) bindKey(ino metadata.Ino, key string) error {
	n, err := m.node(ino)
	if err != nil {
		return err
	}
	if n.in.Key == key {
		return nil
	}
	if key != "" && m.published(n) {
		return metadata.ErrPermission
	}
	if key != "" && m.keys()[key] != 0 {
		return metadata.ErrExist
	}
	n.in.Key = key
	n.in.Ctime = m.now
	return nil
}

func (m *model) keys() map[string]metadata.Ino {
	keys := map[string]metadata.Ino{}
	for ino, n := range m.nodes {
		if n.in.Key != "" {
			keys[n.in.Key] = ino
		}
	}
	return keys
}
