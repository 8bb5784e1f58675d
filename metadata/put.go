package metadata

import (
	"context"
	"fmt"
)

// NewFile describes one file that Put creates.
type NewFile struct {
	// Ino comes from NewInos, so that content can be created under it before.
	Ino  Ino
	Name string
	// Key is the file's key; empty for none, which is required in PublishIno.
	Key string
	// Node describes a regular file.
	Node Node
	// Device is the device of the content; empty means the directory's. It may differ from
	// that only in PublishIno, where it is required.
	Device    DeviceName
	Size      uint64
	Allocated uint64
	Epoch     Epoch
	// Path is the route by which the content was transferred, as in Inode.
	Path string
	// Xattrs are set on the file, by full name.
	Xattrs map[string][]byte
	// Binding, if not nil, makes the file bound, as Bind does.
	Binding []byte
	// Maps are the mappings of the content, in any order.
	Maps []Mapping
	// Expires is the time at which the file expires; zero means never.
	Expires Timespec
	// Replace allows the file to replace others: the file that has the name in the
	// directory loses the name, and any other file that has the key loses the key.
	Replace bool
}

// PutResult is the outcome for one file of Put.
type PutResult struct {
	Inode Inode
	// Replaced is the inode that had the name before, in its state after the Put. If its
	// Nlink is 0 its records are gone, and its Key is the key that it had. Nil if there was
	// none.
	Replaced *Inode
	// Unkeyed is an inode with another name that lost the key to the file; 0 for none.
	Unkeyed Ino
	// Err is the reason why the file was not created: ErrExist for a name or a key that is
	// taken, ErrIsDir for the name of a directory, ErrCrossDevice for the wrong Device,
	// ErrPermission for a key in PublishIno, and the errors of Create, Bind, SetXattr,
	// BindKey and SaveContent.
	Err error
}

const (
	// putBatch bounds the number of files that one transaction of Put creates.
	putBatch = 256
	// putKeys and putBytes bound the number of records, and their bytes, that Put puts into
	// one transaction. A single file may exceed them.
	putKeys  = 4096
	putBytes = 512 << 10
	// putChunk is the approximate size, in bytes, of the keys and values of one file.
	putChunk = 512
)

// NewInos allocates n inode numbers for Put.
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

// Put creates several files in one directory, in few transactions: each file is created
// completely or not at all, independently of the others. The results are in the order of
// the files, which are created in that order too: of two files with the same name the
// second may replace the first.
//
// Errors: ErrNotExist and ErrNotDir for the directory, ErrPermission in the root, and those
// of the KV. The files before the error keep their results, and the others have the error
// as theirs.
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
