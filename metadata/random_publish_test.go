package metadata_test

import (
	"fmt"
	"math"

	"github.com/hmcfs/hmcfs/metadata"
)

func (x *randomRun) publish() {
	dir := x.dir()
	name, newName := x.name(dir), x.name(metadata.PublishIno)
	in, err := x.s.Publish(x.t.Context(), dir, name, newName)
	x.agree(fmt.Sprintf("publish %d/%s as %s", dir, name, newName), err, x.m.publishFile(dir, name, newName))
	if err == nil && (in.Parent != metadata.PublishIno || in.Name != newName || in.Key != "") {
		x.t.Fatalf("publish answers %+v", in)
	}
}

func (x *randomRun) take() {
	ino := x.ino()
	for _, n := range x.m.publish.children {
		ino = n.in.Ino
	}
	x.agree(fmt.Sprintf("take %d", ino), x.s.Take(x.t.Context(), ino), x.m.take(ino))
}

func (x *randomRun) moment() metadata.Timespec {
	return metadata.Timespec{Sec: x.r.Int64N(6) - 3, Nsec: x.r.Uint32N(3)}
}

func (x *randomRun) expire() {
	ino, at := x.ino(), x.moment()
	x.agree(fmt.Sprintf("expire %d at %v", ino, at), x.s.Expire(x.t.Context(), ino, at), x.m.expire(ino, at))
}

// newFile returns a file for Put that may or may not be valid.
func (x *randomRun) newFile(ino, dir metadata.Ino) metadata.NewFile {
	f := metadata.NewFile{
		Ino: ino, Name: x.name(dir), Key: []string{"", "a", "b", "c;1", "d"}[x.r.IntN(5)],
		Node:   metadata.Node{Mode: metadata.TypeRegular | metadata.Mode(x.r.Uint32N(0o1000)), UID: x.r.Uint32(), GID: x.r.Uint32()},
		Device: []metadata.DeviceName{"", "sim0", "sim1"}[x.r.IntN(3)],
		Size:   x.r.Uint64(), Allocated: x.r.Uint64(), Epoch: metadata.Epoch(x.r.Uint64N(9)), Path: "h2d",
		Maps: x.mappings(), Replace: x.r.IntN(2) == 0,
	}
	if x.r.IntN(3) == 0 {
		f.Xattrs = map[string][]byte{"user.0": []byte("v"), "user.hmc.blobs": []byte(f.Name)}
	}
	if f.Fleeting = x.r.IntN(3) == 0; !f.Fleeting && x.r.IntN(2) == 0 {
		f.Binding = []byte(f.Name)
	}
	if x.r.IntN(3) == 0 {
		f.Expires = x.moment()
	}
	return f
}

func (x *randomRun) put() {
	dir := x.dir()
	inos, err := x.s.NewInos(x.t.Context(), 1+x.r.IntN(6))
	if err != nil {
		x.t.Fatal(err)
	}
	x.inos = append(x.inos, inos...)
	files := make([]metadata.NewFile, len(inos))
	for i := range files {
		files[i] = x.newFile(inos[i], dir)
	}
	results, err := x.s.Put(x.t.Context(), dir, files)
	at, want := x.m.dir(dir)
	if want == nil && at == x.m.root {
		want = metadata.ErrPermission
	}
	x.agree(fmt.Sprintf("put %d files in %d", len(files), dir), err, want)
	for i := range files {
		if want != nil {
			x.agree("put without a directory", results[i].Err, want)
			continue
		}
		x.comparePut(dir, at, &files[i], &results[i])
	}
}

func (x *randomRun) comparePut(dir metadata.Ino, at *modelNode, f *metadata.NewFile, res *metadata.PutResult) {
	x.t.Helper()
	replaced, unkeyed, err := x.m.put(at, f)
	x.agree(fmt.Sprintf("put %d/%s as %d, key %q, replace %v", dir, f.Name, f.Ino, f.Key, f.Replace), res.Err, err)
	var gone metadata.Ino
	if res.Replaced != nil {
		gone = res.Replaced.Ino
	}
	if gone != replaced || res.Unkeyed != unkeyed {
		x.t.Fatalf("put replaces %d, unkeys %d, the model %d and %d", gone, res.Unkeyed, replaced, unkeyed)
	}
}

// compareExpired lists the files that expire, all at once and in parts.
func (x *randomRun) compareExpired() {
	x.t.Helper()
	want := x.m.ending()
	over, next, err := x.s.Expired(x.t.Context(), metadata.Timespec{Sec: math.MaxInt64}, len(want)+1)
	if err != nil || len(over) != len(want) || next != (metadata.Timespec{}) {
		x.t.Errorf("%d files end (next %v, %v), want %d", len(over), next, err, len(want))
		return
	}
	for i := range want {
		if over[i] != want[i].Ino {
			x.t.Errorf("%d ends as number %d, want %d", over[i], i, want[i].Ino)
		}
	}
	for i := range want {
		over, next, err = x.s.Expired(x.t.Context(), want[i].Expires, i+1)
		var then metadata.Timespec
		if i+1 < len(want) {
			then = want[i+1].Expires
		}
		if err != nil || len(over) != i+1 || next != then {
			x.t.Errorf("%d files are over, next %v, %v, want %d, next %v", len(over), next, err, i+1, then)
		}
	}
}
