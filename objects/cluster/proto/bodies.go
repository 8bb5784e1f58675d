package proto

import "github.com/hmcfs/hmcfs/transport/wire"

// Cred is the user that asks, as the asking node knows it. The owner maps it by its own
// policy before it believes anything.
type Cred struct {
	_      struct{} `cbor:",toarray"`
	UID    uint32
	GID    uint32
	Groups []uint32 // at most MaxGroups
}

// The bounds of lists in bodies.
const (
	MaxGroups  = 64
	MaxEntries = 4096
)

// Hello is a node's first words in a session.
type Hello struct {
	_       struct{} `cbor:",toarray"`
	Version uint32
	Cluster string // the cluster's name; both have the same
	Record  []byte // members.Record, JSON
}

// Welcome answers it.
type Welcome struct {
	_       struct{} `cbor:",toarray"`
	Version uint32
	Record  []byte
}

// Time is a point in time.
type Time struct {
	_    struct{} `cbor:",toarray"`
	Sec  int64
	Nsec uint32
}

// Attr is an inode as the owner knows it. User and group are the owner's.
type Attr struct {
	_         struct{} `cbor:",toarray"`
	Ino       uint64
	Gen       uint64
	Mode      uint32
	UID       uint32
	GID       uint32
	Nlink     uint32
	Rdev      uint32
	Size      uint64
	Allocated uint64
	Atime     Time
	Mtime     Time
	Ctime     Time
	Btime     Time
	Device    string
	Parent    uint64
	Target    string
	Key       string
	Path      string
	State     string
	Expires   Time
	// Keep is the time the answer may be remembered, in milliseconds: the
	// owner pushes NoticeInvalid for as long. 0 is not at all.
	Keep uint32
	// Order counts the changes that the owner had noted before it read the inode. Of
	// two answers about one inode the one of the lesser order is the older one,
	// whichever arrives first.
	Order uint64
}

// LookupAsk names an entry of a directory.
type LookupAsk struct {
	_    struct{} `cbor:",toarray"`
	Cred Cred
	Dir  uint64
	Name string
}

// InoAsk names an inode.
type InoAsk struct {
	_    struct{} `cbor:",toarray"`
	Cred Cred
	Ino  uint64
}

// ReadDirAsk asks for a page of a directory.
type ReadDirAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   Cred
	Dir    uint64
	Cookie uint64
	Limit  uint32
}

// Entry is one entry of a page. Attr.Ino is 0 where the asker may not know
// more than Ino and Type.
type Entry struct {
	_      struct{} `cbor:",toarray"`
	Name   string
	Ino    uint64
	Type   uint32
	Cookie uint64
	Attr   Attr
}

// ReadDirAnswer is a page; End says that nothing follows.
type ReadDirAnswer struct {
	_       struct{} `cbor:",toarray"`
	Entries []Entry
	End     bool
}

// CreateAsk makes an inode of any type.
type CreateAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   Cred
	Dir    uint64
	Name   string
	Mode   uint32 // type and permissions, umask applied
	Rdev   uint32
	Target string
}

// CreateOpenAsk makes a regular file and opens it.
type CreateOpenAsk struct {
	_      struct{} `cbor:",toarray"`
	Create CreateAsk
	Access uint32
}

// LinkAsk adds a name.
type LinkAsk struct {
	_    struct{} `cbor:",toarray"`
	Cred Cred
	Ino  uint64
	Dir  uint64
	Name string
}

// RemoveAsk removes a name.
type RemoveAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   Cred
	Dir    uint64
	Name   string
	Folder bool // rmdir
}

// RenameAsk moves a name.
type RenameAsk struct {
	_       struct{} `cbor:",toarray"`
	Cred    Cred
	From    uint64
	Name    string
	To      uint64
	NewName string
	Flags   uint32
}

// The bits of SetAttrAsk.Set.
const (
	SetMode = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetCtime
	SetKillPriv
)

// TimeNow in the place of the nanoseconds of Atime or Mtime is the present by
// the owner's clock, as with utimensat(2).
const TimeNow = 1<<30 - 1

// SetAttrAsk changes attributes: those whose bit is set. Handle is an open
// handle whose right to write covers a change of size, or 0.
type SetAttrAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   Cred
	Ino    uint64
	Handle uint64
	Set    uint32
	Mode   uint32
	UID    uint32
	GID    uint32
	Size   uint64
	Atime  Time
	Mtime  Time
	Ctime  Time
}

// XattrAsk is about one extended attribute.
type XattrAsk struct {
	_     struct{} `cbor:",toarray"`
	Cred  Cred
	Ino   uint64
	Name  string
	Value []byte
	Flags uint32
}

// XattrAnswer is its value.
type XattrAnswer struct {
	_     struct{} `cbor:",toarray"`
	Value []byte
}

// ListXattrAnswer are their names.
type ListXattrAnswer struct {
	_     struct{} `cbor:",toarray"`
	Names []string
}

// StatFSAnswer is the device that holds an inode, in bytes and inodes.
type StatFSAnswer struct {
	_      struct{} `cbor:",toarray"`
	Device string
	Total  uint64
	Free   uint64
	Used   uint64
}

// The bits of OpenAsk.Access.
const (
	AccessRead  = 1
	AccessWrite = 2
)

// OpenAsk opens a regular file. The handle is the session's and ends with it.
type OpenAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   Cred
	Ino    uint64
	Gen    uint64 // 0 is any
	Access uint32
}

// OpenAnswer is a handle, and the file as it is now.
type OpenAnswer struct {
	_      struct{} `cbor:",toarray"`
	Handle uint64
	Attr   Attr
}

// HandleAsk names an open handle.
type HandleAsk struct {
	_      struct{} `cbor:",toarray"`
	Handle uint64
}

// MoveAsk moves bytes between an open file and the asker's registered memory,
// which lies at Off of the region that Memory (a wire.Descriptor) names.
type MoveAsk struct {
	_      struct{} `cbor:",toarray"`
	Handle uint64
	Off    uint64
	N      uint64
	Memory []byte // wire.Descriptor, encoded
	MemOff uint64
	// Append writes at the file's end; KillPriv as in objects.Write.
	Append   bool
	KillPriv bool
}

// MoveAnswer counts what was moved. Less than asked for without an error is the
// end of a file that was read, or a device that is full.
type MoveAnswer struct {
	_    struct{} `cbor:",toarray"`
	N    uint64
	Off  uint64 // where it was written
	Size uint64 // the file's size now
	Path string // the owner's view of the way
	// Version is the content's after it was read: odd when it changed meanwhile.
	// Answers of other methods have none.
	Version uint64
	// Order is that of Size; see Attr.
	Order uint64
}

// AllocateAsk is fallocate, with the modes of objects.AllocateMode.
type AllocateAsk struct {
	_      struct{} `cbor:",toarray"`
	Handle uint64
	Mode   uint32
	Off    uint64
	N      uint64
}

// SeekAsk is lseek for data or holes.
type SeekAsk struct {
	_      struct{} `cbor:",toarray"`
	Handle uint64
	Off    uint64
	Hole   bool
}

// SeekAnswer has the offset that was found.
type SeekAnswer struct {
	_   struct{} `cbor:",toarray"`
	Off uint64
}

// CopyAsk copies between two open files of the owner.
type CopyAsk struct {
	_      struct{} `cbor:",toarray"`
	Dst    uint64   // handle
	DstOff uint64
	Src    uint64 // handle
	SrcOff uint64
	N      uint64
}

// PullAsk has the owner read Ino of another node, as Cred, into an open file.
type PullAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   Cred
	Handle uint64
	Off    uint64
	Node   string
	Epoch  uint64 // the incarnation that is meant
	Ino    uint64
	Gen    uint64
	SrcOff uint64
	N      uint64
}

// KeyAsk is about a key, of keys/ or of publish/.
type KeyAsk struct {
	_       struct{} `cbor:",toarray"`
	Cred    Cred
	Key     string
	Publish bool
}

// KeyAnswer has the place of its object: a path from the mount's root ("cuda0/a"),
// its attributes and the sizes of its blobs.
type KeyAnswer struct {
	_     struct{} `cbor:",toarray"`
	Path  string
	Attr  Attr
	Blobs []uint64
}

// ListKeysAsk asks for a node's own keys behind one.
type ListKeysAsk struct {
	_       struct{} `cbor:",toarray"`
	After   string
	Limit   uint32
	Publish bool
}

// ListKeysAnswer are they, in order.
type ListKeysAnswer struct {
	_    struct{} `cbor:",toarray"`
	Keys []string
}

// ExpireKeyAsk sets when a key's object ends; a zero time is never.
type ExpireKeyAsk struct {
	_    struct{} `cbor:",toarray"`
	Cred Cred
	Key  string
	At   Time
}

// ClaimAsk begins to receive a publication. ID is the asker's, random, and
// names the claim in what follows, also in a later session. Blobs are the
// sizes that the receiver has room for, to be compared; none is any. With Wait
// the owner waits for another one who may still fail.
type ClaimAsk struct {
	_     struct{} `cbor:",toarray"`
	Cred  Cred
	Key   string
	ID    [16]byte
	Blobs []uint64
	Wait  bool
}

// ClaimAnswer is a handle to read the bytes by.
type ClaimAnswer struct {
	_      struct{} `cbor:",toarray"`
	Handle uint64
	Size   uint64
	Blobs  []uint64
}

// TakeAsk ends a claim.
type TakeAsk struct {
	_        struct{} `cbor:",toarray"`
	ID       [16]byte
	Received bool
}

// Invalid are inodes whose attributes or content, and directories whose names,
// have changed.
type Invalid struct {
	_     struct{} `cbor:",toarray"`
	Inos  []uint64
	Names []uint64 // directories
}

// Descriptor decodes the region that a MoveAsk names.
func (m *MoveAsk) Descriptor() (wire.Descriptor, error) { return wire.ParseDescriptor(m.Memory) }
