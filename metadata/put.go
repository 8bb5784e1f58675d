package metadata

import "fmt"

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
	// Fleeting makes it bound, with or without a Binding: to memory of a session. Put may return before
	// it has written the records; see Deferrer.
	Fleeting bool
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
	// Inode is the file, which the caller must not change; nil with an error.
	Inode *Inode
	// Replaced is the inode that had the name before, in its state after the Put. If its
	// Nlink is 0 its records are gone, and its Key is the key that it had. Nil if there was
	// none.
	Replaced *Inode
	// Unkeyed is an inode with another name that lost the key to the file; 0 for none, and if
	// it was the key of a part.
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

// putFile is a validated file of Put.
type putFile struct {
	*NewFile
	node        Node
	maps        []Mapping // in order
	keys, bytes int       // its share of a transaction, as far as it is known
}

// check validates a file, independently of the directory's content, and stores it.
func (f *putFile) check(n *NewFile) error {
	f.NewFile, f.node, f.maps, f.keys, f.bytes = n, n.Node, nil, 0, 0
	if err := validName(f.Name); err != nil {
		return err
	}
	if err := f.node.normalize(); err != nil {
		return err
	}
	switch {
	case f.Ino < FirstIno, f.node.Mode.Type() != TypeRegular, f.Expires.Nsec >= 1e9:
		return ErrInvalid
	case len(f.Binding) > MaxBinding:
		return fmt.Errorf("binding of %d bytes: %w", len(f.Binding), ErrTooLarge)
	}
	if f.Key != "" {
		if err := ValidKey(f.Key); err != nil {
			return err
		}
	}
	return f.measure()
}

// measure sorts the mappings and estimates the size of the file's records.
func (f *putFile) measure() error {
	var err error
	if f.maps, err = sortedMappings(f.Maps); err != nil {
		return err
	}
	f.keys = 5 + len(f.Xattrs) + len(f.maps)
	f.bytes = 2*inodeRoom + 4*len(f.Name) + 2*len(f.Key) + len(f.Binding) + len(f.maps)*2*mappingRoom
	for name, value := range f.Xattrs {
		if err := validXattr(name); err != nil {
			return err
		}
		if len(value) > MaxXattr {
			return fmt.Errorf("attribute %s: %w", name, ErrTooLarge)
		}
		f.bytes += 16 + len(name) + len(value)
	}
	return nil
}
