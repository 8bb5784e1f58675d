package proto

import "github.com/hmcfs/hmcfs/transport/wire"

// Cred is the user on whose behalf a node sends a request, as that node knows it. The owner
// maps it by its own policy before it trusts anything. Requests on behalf of a user embed it
// with a name, so that it remains one element of theirs.
type Cred struct {
	_      struct{} `cbor:",toarray"`
	UID    uint32
	GID    uint32
	Groups []uint32 // at most MaxGroups
}

// Caller returns the user of a request.
func (c Cred) Caller() Cred { return c }

// The bounds of lists in bodies.
const (
	MaxGroups  = 64
	MaxEntries = 4096
)

// Hello is the first message of a node in a session.
type Hello struct {
	_       struct{} `cbor:",toarray"`
	Version uint32
	Cluster string // the cluster's name; must be equal on both nodes
	Record  []byte // members.Record, JSON
}

// Welcome is the answer to Hello.
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
	// Keep is the time for which the answer may be cached, in milliseconds: the owner pushes
	// NoticeInvalid for as long. 0 forbids caching.
	Keep uint32
	// Order counts the changes that the owner had recorded before it read the inode. Of two
	// answers about one inode the one with the lesser order is older, whichever arrives first.
	Order uint64
}

// LookupAsk names an entry of a directory.
type LookupAsk struct {
	_    struct{} `cbor:",toarray"`
	Cred `cbor:"cred"`
	Dir  uint64
	Name string
}

// InoAsk names an inode.
type InoAsk struct {
	_    struct{} `cbor:",toarray"`
	Cred `cbor:"cred"`
	Ino  uint64
}

// ReadDirAsk asks for a page of a directory.
type ReadDirAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   `cbor:"cred"`
	Dir    uint64
	Cookie uint64
	Limit  uint32
}

// Entry is one entry of a page. Attr.Ino is 0 if the requester may only see Ino and Type.
type Entry struct {
	_      struct{} `cbor:",toarray"`
	Name   string
	Ino    uint64
	Type   uint32
	Cookie uint64
	Attr   Attr
}

// ReadDirAnswer is a page; End is set if no entries follow.
type ReadDirAnswer struct {
	_       struct{} `cbor:",toarray"`
	Entries []Entry
	End     bool
}

// CreateAsk creates an inode of any type.
type CreateAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   `cbor:"cred"`
	Dir    uint64
	Name   string
	Mode   uint32 // type and permissions, umask applied
	Rdev   uint32
	Target string
}

// CreateOpenAsk creates a regular file and opens it.
type CreateOpenAsk struct {
	_      struct{} `cbor:",toarray"`
	Create CreateAsk
	Access uint32
}

// LinkAsk adds a name.
type LinkAsk struct {
	_    struct{} `cbor:",toarray"`
	Cred `cbor:"cred"`
	Ino  uint64
	Dir  uint64
	Name string
}

// RemoveAsk removes a name.
type RemoveAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   `cbor:"cred"`
	Dir    uint64
	Name   string
	Folder bool // rmdir
}

// RenameAsk moves a name.
type RenameAsk struct {
	_       struct{} `cbor:",toarray"`
	Cred    `cbor:"cred"`
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

// TimeNow in place of the nanoseconds of Atime or Mtime means the present by the owner's
// clock, as with utimensat(2).
const TimeNow = 1<<30 - 1

// SetAttrAsk changes the attributes whose bit is set. Handle is an open handle whose
// permission to write covers a change of size, or 0.
type SetAttrAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   `cbor:"cred"`
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

// XattrAsk is a request about one extended attribute.
type XattrAsk struct {
	_     struct{} `cbor:",toarray"`
	Cred  `cbor:"cred"`
	Ino   uint64
	Name  string
	Value []byte
	Flags uint32
}

// XattrAnswer is the value of an attribute.
type XattrAnswer struct {
	_     struct{} `cbor:",toarray"`
	Value []byte
}

// ListXattrAnswer lists the names of attributes.
type ListXattrAnswer struct {
	_     struct{} `cbor:",toarray"`
	Names []string
}

// StatFSAnswer is the use of the device that holds an inode, in bytes.
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

// OpenAsk opens a regular file. The handle belongs to the session and ends with it.
type OpenAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   `cbor:"cred"`
	Ino    uint64
	Gen    uint64 // 0 accepts any
	Access uint32
}

// OpenAnswer is a handle, and the present attributes of the file.
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

// MoveAsk moves bytes between an open file and the requester's registered memory, at MemOff of
// the region that Memory (a wire.Descriptor) names.
type MoveAsk struct {
	_      struct{} `cbor:",toarray"`
	Handle uint64
	Off    uint64
	N      uint64
	Memory []byte // wire.Descriptor, encoded
	MemOff uint64
	// Append writes at the file's end; KillPriv is defined as in objects.Write.
	Append   bool
	KillPriv bool
}

// MoveAnswer reports the number of bytes moved. Fewer than requested without an error mean the
// end of a file that was read, or a full device.
type MoveAnswer struct {
	_    struct{} `cbor:",toarray"`
	N    uint64
	Off  uint64 // the offset written at
	Size uint64 // the present size of the file
	Path string // the route as the owner sees it
	// Version is the content's version after the read: odd if it changed during the read.
	// Answers of other methods have none.
	Version uint64
	// Order is the order of Size; see Attr.
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

// SeekAnswer is the offset that was found.
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

// PullAsk makes the owner read Ino of another node, as Cred, into an open file.
type PullAsk struct {
	_      struct{} `cbor:",toarray"`
	Cred   `cbor:"cred"`
	Handle uint64
	Off    uint64
	Node   string
	Epoch  uint64 // the intended incarnation
	Ino    uint64
	Gen    uint64
	SrcOff uint64
	N      uint64
}

// KeyAsk is a request about a key, of keys/ or of publish/.
type KeyAsk struct {
	_       struct{} `cbor:",toarray"`
	Cred    `cbor:"cred"`
	Key     string
	Publish bool
}

// KeyAnswer describes the key's object: its path from the mount's root ("cuda0/a"), its
// attributes, the sizes of its blobs, and the offset in the file at which these begin. For a
// key of a tensor the attributes are the file's, except for the size.
type KeyAnswer struct {
	_     struct{} `cbor:",toarray"`
	Path  string
	Attr  Attr
	Blobs []uint64
	Off   uint64
}

// ListKeysAsk requests a node's own keys after a key.
type ListKeysAsk struct {
	_       struct{} `cbor:",toarray"`
	After   string
	Limit   uint32
	Publish bool
}

// ListKeysAnswer lists the keys, in order.
type ListKeysAnswer struct {
	_    struct{} `cbor:",toarray"`
	Keys []string
}

// ExpireKeyAsk sets the expiry of a key's object; a zero time means never.
type ExpireKeyAsk struct {
	_    struct{} `cbor:",toarray"`
	Cred `cbor:"cred"`
	Key  string
	At   Time
}

// ClaimAsk starts to receive a publication. ID is chosen by the requester, and names
// the claim in later requests, including those of a later session: 8 random bytes of the daemon, and 8 of the claim. Blobs are the sizes that
// the receiver has room for, to be compared; none accept any. With Wait the owner waits for
// another receiver that may still fail.
type ClaimAsk struct {
	_     struct{} `cbor:",toarray"`
	Cred  `cbor:"cred"`
	Key   string
	ID    [16]byte
	Blobs []uint64
	Wait  bool
}

// ClaimAnswer is a handle for reading the bytes.
type ClaimAnswer struct {
	_      struct{} `cbor:",toarray"`
	Handle uint64
	Size   uint64
	Blobs  []uint64
}

// TakeAsk ends a claim. Call identifies the call of a session that receives; 0 for one that no later daemon continues.
type TakeAsk struct {
	_        struct{} `cbor:",toarray"`
	ID       [16]byte
	Received bool
	Call     [16]byte
}

// ReceivedAsk asks whether a call has received the publication of a key. Claims are the first bytes of those that the daemon itself
// makes.
type ReceivedAsk struct {
	_      struct{} `cbor:",toarray"`
	Key    string
	Call   [16]byte
	Claims [8]byte
}

// ReceivedAnswer has the answer.
type ReceivedAnswer struct {
	_        struct{} `cbor:",toarray"`
	Received bool
}

// Invalid lists inodes whose attributes or content have changed, and directories whose names
// have changed.
type Invalid struct {
	_     struct{} `cbor:",toarray"`
	Inos  []uint64
	Names []uint64 // directories
}

// Descriptor decodes the region that a MoveAsk names.
func (m *MoveAsk) Descriptor() (wire.Descriptor, error) { return wire.ParseDescriptor(m.Memory) }
