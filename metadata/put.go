package metadata

import (
	"context"
	"fmt"
)

// NewFile is one file that Put makes.
type NewFile struct {
	// Ino is of NewInos, so that content could be made under it before.
	Ino  Ino
	Name string
	// Key is the file's key; empty for none, as in PublishIno.
	Key string
	// Node is a regular file's.
	Node Node
	// Device is the device of the content; where it is empty, the directory's. It
	// differs from that in PublishIno alone, where it is needed.
	Device    DeviceName
	Size      uint64
	Allocated uint64
	Epoch     Epoch
	// Path is the way that the content took, as in Inode.
	Path string
	// Xattrs are set on the file, by full name.
	Xattrs map[string][]byte
	// Binding, where it is not nil, makes the file bound, as Bind does.
	Binding []byte
	// Maps are the mappings of the content, in any order.
	Maps []Mapping
	// Expires is the time at which the file ends; zero is never.
	Expires Timespec
	// Replace lets the file take the name, and the key, of others: the one that
	// has the name in the directory loses it, and any other one that carries the
	// key loses that.
	Replace bool
}

// PutResult is the outcome for one file of Put.
type PutResult struct {
	Inode Inode
	// Replaced is the inode that had the name, as it is after; when its Nlink
	// is 0 its records are gone, and it says what key it had. Nil when there
	// was none.
	Replaced *Inode
	// Unkeyed is the inode, under another name, that the key was taken from; 0
	// for none.
	Unkeyed Ino
	// Err is why the file was not made: ErrExist for a name or a key that is
	// taken, ErrIsDir for a name that is a directory's, ErrCrossDevice for the
	// wrong Device, ErrPermission for a key in PublishIno, and those of Create, Bind, SetXattr, BindKey and
	// SaveContent for what they would refuse.
	Err error
}

const (
	// putBatch bounds the files that one transaction of Put makes.
	putBatch = 256
	// putKeys and putBytes are how many records, and how many bytes of them,
	// Put expects one transaction to take. A single file may be more.
	putKeys  = 4096
	putBytes = 512 << 10
	// putChunk is about what the keys and values of one file take.
	putChunk = 512
)

// NewInos draws n inode numbers for Put.
//
// Errors: those of the KV.
func (s *Store) NewInos(ctx context.Context, n int) ([]Ino, error) {
	inos := make([]Ino, n)
	for i := range inos {
		var err error
		if inos[i], err = s.newIno(ctx); err != nil {
			return nil, err
		}
	}
	return inos, nil
}

// Put makes many files in one directory, in few transactions: each file is
// made whole or not at all. A file that can't be made hinders no other one.
// The results are in the order of the files, which are made in that order too:
// of two of one name the second may replace the first.
//
// Errors: ErrNotExist and ErrNotDir of the directory, ErrPermission in the
// root, and those of the KV; the results before them stand, and the others
// have the error.
func (s *Store) Put(ctx context.Context, dir Ino, files []NewFile) ([]PutResult, error) {
	p := putter{s: s, dir: dir, files: make([]putFile, len(files)), results: make([]PutResult, len(files))}
	for i := range files {
		p.files[i], p.results[i].Err = newPutFile(&files[i])
	}
	for at := 0; at < len(files); {
		n := p.batch(at)
		done, err := p.make(ctx, at, n)
		if err != nil {
			p.fail(at+done, err)
			return p.results, fmt.Errorf("put %d files: %w", len(files), err)
		}
		at += n
	}
	return p.results, nil
}
