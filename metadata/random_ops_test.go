package metadata_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
)

func (x *randomRun) create() {
	types := []metadata.Mode{
		metadata.TypeRegular, metadata.TypeRegular, metadata.TypeDir, metadata.TypeDir,
		metadata.TypeSymlink, metadata.TypeFIFO, metadata.TypeBlock,
	}
	node := metadata.Node{
		Mode: types[x.r.IntN(len(types))] | metadata.Mode(x.r.Uint32N(0o10000)),
		UID:  x.r.Uint32(), GID: x.r.Uint32(),
	}
	switch node.Mode.Type() {
	case metadata.TypeSymlink:
		node.Target = fmt.Sprint("to/", x.r.Uint32())
	case metadata.TypeBlock:
		node.Rdev = x.r.Uint32()
	default:
		// The others have nothing of their own.
	}
	dir := x.dir()
	name := x.name(dir)
	in, err := x.s.Create(x.t.Context(), dir, name, node)
	if err == nil {
		x.inos = append(x.inos, in.Ino)
	}
	x.agree(fmt.Sprintf("create %d/%s %o -> %d", dir, name, node.Mode, in.Ino), err,
		x.m.create(dir, name, node, in.Ino))
}

func (x *randomRun) link() {
	ino, dir := x.ino(), x.dir()
	name := x.name(dir)
	_, err := x.s.Link(x.t.Context(), ino, dir, name)
	x.agree(fmt.Sprintf("link %d to %d/%s", ino, dir, name), err, x.m.link(ino, dir, name))
}

func (x *randomRun) unlink() {
	dir := x.dir()
	names := make([]metadata.Removal, 1+x.r.IntN(3))
	for i := range names {
		names[i].Name = x.name(dir)
	}
	x.s.UnlinkAll(x.t.Context(), dir, names, x.r.IntN(2) == 0)
	for i := range names {
		in, err := &names[i].Inode, names[i].Err
		x.agree(fmt.Sprintf("unlink %d/%s", dir, names[i].Name), err, x.m.remove(dir, names[i].Name, false))
		if _, lives := x.m.nodes[in.Ino]; err == nil && lives != (in.Nlink > 0) {
			x.t.Fatalf("unlink answers %d links for inode %d", in.Nlink, in.Ino)
		}
	}
}

func (x *randomRun) rmdir() {
	dir := x.dir()
	name := x.name(dir)
	_, err := x.s.Rmdir(x.t.Context(), dir, name)
	x.agree(fmt.Sprintf("rmdir %d/%s", dir, name), err, x.m.remove(dir, name, true))
}

func (x *randomRun) randomRename() metadata.Rename {
	r := metadata.Rename{From: x.dir(), To: x.dir()}
	if x.r.IntN(3) == 0 {
		r.To = r.From
	}
	r.Name, r.NewName = x.name(r.From), x.name(r.To)
	r.Flags = []metadata.RenameFlags{0, 0, 0, metadata.NoReplace, metadata.Exchange}[x.r.IntN(5)]
	return r
}

func (x *randomRun) rename() {
	r := x.randomRename()
	_, err := x.s.Rename(x.t.Context(), r)
	x.agree(fmt.Sprintf("rename %+v", r), err, x.m.rename(r, nil, 0, nil))
}

func (x *randomRun) moveDevice() {
	r := x.randomRename()
	r.Flags &^= metadata.Exchange
	device := metadata.DeviceName(fmt.Sprintf("sim%d", x.r.IntN(2)))
	mapped, epoch := x.mappings(), metadata.Epoch(x.r.Uint64N(9))
	_, err := x.s.MoveDevice(x.t.Context(), r, device, epoch, mapped)
	x.agree(fmt.Sprintf("move to %s %+v", device, r), err, x.m.rename(r, &device, epoch, mapped))
}

func (x *randomRun) change() func(*metadata.Inode) error {
	size, epoch, perm := x.r.Uint64(), metadata.Epoch(x.r.Uint64()), metadata.Mode(x.r.Uint32N(0o10000))
	owner, stamp := x.r.Uint32(), metadata.Timespec{Sec: x.r.Int64() - 1<<62, Nsec: x.r.Uint32N(1e9)}
	return func(in *metadata.Inode) error {
		if !in.IsDir() {
			in.Size = size
		}
		in.Epoch, in.Allocated, in.Path = epoch, size/2, "h2d"
		in.Mode = in.Mode.Type() | perm
		in.UID, in.GID = owner, owner+1
		in.Atime, in.Mtime, in.Ctime = stamp, stamp, x.m.now
		return nil
	}
}

func (x *randomRun) update() {
	ino, fn := x.ino(), x.change()
	_, err := x.s.Update(x.t.Context(), ino, fn)
	n, want := x.m.node(ino)
	if want == nil {
		want = fn(&n.in)
	}
	x.agree(fmt.Sprintf("update %d", ino), err, want)
}

func (x *randomRun) saveContent() {
	ino, fn, mapped := x.ino(), x.change(), x.mappings()
	_, err := x.s.SaveContent(x.t.Context(), ino, fn, mapped)
	n, want := x.m.node(ino)
	if want == nil {
		want = fn(&n.in)
		n.setMaps(mapped)
	}
	x.agree(fmt.Sprintf("save %d mappings of %d", len(mapped), ino), err, want)
}

func (x *randomRun) setXattr() {
	ino, name := x.ino(), fmt.Sprintf("user.%d", x.r.IntN(4))
	value := fmt.Sprint(x.r.Uint64())[:x.r.IntN(8)]
	flags := metadata.XattrFlags(x.r.IntN(3))
	err := x.s.SetXattr(x.t.Context(), ino, name, []byte(value), flags)
	x.agree(fmt.Sprintf("setxattr %d %s %d", ino, name, flags), err, x.m.setXattr(ino, name, value, flags))
}

func (x *randomRun) removeXattr() {
	ino, name := x.ino(), fmt.Sprintf("user.%d", x.r.IntN(4))
	err := x.s.RemoveXattr(x.t.Context(), ino, name)
	x.agree(fmt.Sprintf("removexattr %d %s", ino, name), err, x.m.removeXattr(ino, name))
}

func (x *randomRun) bindKey() {
	ino, key := x.ino(), []string{"", "a", "b", "c;1", "d"}[x.r.IntN(5)]
	err := x.s.BindKey(x.t.Context(), ino, key)
	x.agree(fmt.Sprintf("bind %d to %q", ino, key), err, x.m.bindKey(ino, key))
}

// removeBelow removes everything below a directory, or only its regular files.
func (x *randomRun) removeBelow(dir metadata.Ino, filesOnly bool) {
	x.tick()
	for _, name := range slices.Sorted(maps.Keys(x.m.nodes[dir].children)) {
		n := x.m.nodes[dir].children[name]
		isDir := n.children != nil
		if isDir {
			x.removeBelow(n.in.Ino, filesOnly)
		}
		if filesOnly && n.in.Mode.Type() != metadata.TypeRegular {
			continue
		}
		remove := x.s.Unlink
		if isDir {
			remove = x.s.Rmdir
		}
		_, err := remove(x.t.Context(), dir, name)
		x.agree(fmt.Sprintf("remove %d/%s", dir, name), err, x.m.remove(dir, name, isDir))
	}
}
