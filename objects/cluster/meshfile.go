package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// meshFile is an open file of another node with its number in the mesh.
type meshFile struct {
	*File
	at objects.Ino
	// foreign is true if the content is, or may be, memory of a process on the owner, which
	// changes without notification.
	foreign atomic.Bool
}

// newMeshFile returns an open file, with the state of its content.
func newMeshFile(f *File, at objects.Ino, state objects.State) *meshFile {
	m := &meshFile{File: f, at: at}
	m.foreign.Store(state == objects.StateBound)
	return m
}

var _ objects.OpenFile = (*meshFile)(nil)

// Ino returns the number in the mesh.
func (f *meshFile) Ino() objects.Ino { return f.at }

// Foreign reports whether the bytes change without the owner's store.
func (f *meshFile) Foreign() bool { return f.foreign.Load() }

// Accessed does nothing: the owner has recorded the access with the read.
func (*meshFile) Accessed() {}

// Open opens a file; see objects.Opener.
func (m *Mesh) Open(ctx context.Context, who objects.Caller, ino objects.Ino, want objects.Permission) (objects.OpenFile, error) {
	if !OfAnotherNode(ino) {
		return m.local.Open(ctx, who, ino, want)
	}
	p, err := m.others.find(ino)
	switch {
	case err != nil:
		return nil, err
	case p.isTop():
		return nil, metadata.ErrIsDir
	}
	file, err := p.Open(ctx, who, p.ino, want)
	if err != nil {
		return nil, err
	}
	// The answer to the open included the attributes, so the node is not asked again.
	a, _ := p.Attr(ctx, who, p.ino)
	return newMeshFile(file, ino, a.State), nil
}

// CreateOpen makes a file and opens it; see objects.Opener.
func (m *Mesh) CreateOpen(ctx context.Context, who objects.Caller, dir objects.Ino, name string, n objects.NewFile) (objects.Attr, objects.OpenFile, error) {
	if !OfAnotherNode(dir) {
		return m.local.CreateOpen(ctx, who, dir, name, n)
	}
	p, err := m.below(dir)
	if err != nil {
		return objects.Attr{}, nil, err
	}
	node := metadata.Node{Mode: metadata.TypeRegular | n.Mode.Perm()}
	made, file, err := p.CreateOpen(ctx, who, p.ino, name, node, n.Want)
	switch {
	case errors.Is(err, metadata.ErrExist) && n.Existing:
		return m.openExisting(ctx, who, dir, name, n.Want)
	case err != nil && made.Ino != 0:
		return objects.Attr{}, nil, errors.Join(err, p.Unlink(ctx, who, p.ino, name))
	case err != nil:
		return objects.Attr{}, nil, err
	}
	a, err := p.adopt(made, nil)
	if err != nil {
		return objects.Attr{}, nil, errors.Join(err, file.Close(ctx))
	}
	return a, newMeshFile(file, a.Ino, a.State), nil
}

// openExisting opens a file that was to be created, but already existed.
//
// Errors: metadata.ErrExist if it is not a regular file.
func (m *Mesh) openExisting(ctx context.Context, who objects.Caller, dir objects.Ino, name string, want objects.Permission) (objects.Attr, objects.OpenFile, error) {
	a, err := m.Lookup(ctx, who, dir, name)
	if err == nil && !a.IsRegular() {
		err = fmt.Errorf("%q is not a regular file: %w", name, metadata.ErrExist)
	}
	if err != nil {
		return objects.Attr{}, nil, err
	}
	f, err := m.Open(ctx, who, a.Ino, want)
	return a, f, err
}

// FileRange is one end of a copy: an open file, and an offset in bytes.
type FileRange struct {
	File objects.OpenFile
	Off  uint64
}

// Copy copies n bytes between two files that the mesh has opened, at least one of which is
// another node's, and returns the number of bytes copied; see Cluster.Copy.
//
// Errors: objects.ErrUnsupported for a file of another type.
func (m *Mesh) Copy(ctx context.Context, dst, src FileRange, n uint64) (uint64, error) {
	to, err := dst.end()
	if err != nil {
		return 0, err
	}
	from, err := src.end()
	if err != nil {
		return 0, err
	}
	return m.cluster.Copy(ctx, to, from, n)
}

func (r FileRange) end() (End, error) {
	switch f := r.File.(type) {
	case *objects.File:
		return End{Local: f, Off: r.Off}, nil
	case *meshFile:
		return End{Remote: f.File, Off: r.Off}, nil
	}
	return End{}, fmt.Errorf("can't copy a file from outside the mesh: %w", objects.ErrUnsupported)
}
