package fs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
)

// The state of a held mount is a shared map of a memfd, which survives the death of this process
// with all that was stored before. It begins with a heldHeader; askedSlots begin at askedAt, heldSlots at slotsAt, and a heldView for each of
// them at viewsAt, where most pages are never touched. A slot is in use while its number is not 0, which is stored last and
// cleared first.
const (
	heldMagic = 0x68656c64_66736d68 // "hmsfdleh"
	askedAt   = 4096
	slotsAt   = askedAt + askedSlots*int(unsafe.Sizeof(askedSlot{}))
	// mostHandles bounds the handles that are found again. It is the limit of open files that the
	// daemon asks for; memory is used for those that exist.
	mostHandles = 1 << 20
	// mostLinks bounds the symlinks of keys among them, since the kernel may know one of each key of all nodes. The next
	// process does not know others: a program that has one open gets ESTALE, or ENOENT where there are no other nodes.
	mostLinks = 1 << 16
	exchanges = 64
	// mostLeft bounds the files that have just left publish/: a file counts while the kernel may be about to open it.
	mostLeft = 64
	viewsAt  = slotsAt + mostHandles*int(unsafe.Sizeof(heldSlot{}))
	heldSize = viewsAt + mostHandles*int(unsafe.Sizeof(heldView{}))
)

// HeldVersion is the version of the state of a mount that this program writes. It reads no other.
const HeldVersion = 5

// initLength is the length of the kernel's first message.
const initLength = uint32(unsafe.Sizeof(fuse.InitIn{}))

// heldHeader describes the connection to the kernel.
type heldHeader struct {
	magic   uint64
	version uint32
	_       uint32
	// init is the kernel's first message, flags are those that were answered, and maxWrite is the
	// largest request.
	init     fuse.InitIn
	flags    uint64
	maxWrite uint64
	// last is the highest number that a handle has had.
	last uint64
	// top is the number of slots that were ever used: reading one that was not would give it memory.
	top uint64
	// next counts the exchanges, and exchanged holds the latest of them.
	next      uint64
	exchanged [exchanges]heldExchange
	// lefts counts the files that have left publish/, and left holds the latest of them.
	lefts uint64
	left  [mostLeft]uint64
}

// There is room for it.
const _ = askedAt - unsafe.Sizeof(heldHeader{})

// heldExchange is an exchange of two names: the request, and the inode of its first name before.
type heldExchange struct{ unique, ino uint64 }

// heldSlot is an open file or directory, or the symlink of a key.
type heldSlot struct {
	// id is the number that the kernel knows: of a handle, or of the symlink's inode; 0 if the slot is free.
	id  uint64
	ino uint64
	// unique is the number of the request that opened it. Of a symlink it is the number of the kernel's references.
	unique uint64
	// flags are those of open(2), and openFlags and backing those of the answer.
	flags     uint32
	openFlags uint32
	backing   int32
	kind      heldKind
	// uid, gid and pid are those of the caller: the node that has the file checks them when it is opened again, and a
	// reader of events has those that it may see.
	uid, gid, pid uint32
	_             uint32
	// reading has bits for a file that was in publish/ when it was opened; 0 for any other.
	reading uint64
}

// heldView describes the inode of a slot that is of a view, which has no records. Of a symlink it has the key, as a
// name. For a file of publish/ its memory is that of a heldReading.
type heldView struct {
	// file is the inode of the file; 0 if this is not recorded.
	file uint64
	// name and path are the lengths of those of the view's node, which follow each other in text.
	name, path uint16
	text       [1012]byte
}

func (v *heldView) set(n *viewNode) {
	*v = heldView{}
	if n == nil || len(n.name)+len(n.path) > len(v.text) {
		return
	}
	v.file, v.name, v.path = uint64(n.file), uint16(len(n.name)), uint16(len(n.path))
	copy(v.text[copy(v.text[:], n.name):], n.path)
}

// strings returns name and path. A slot that was damaged has others, not too long ones.
func (v *heldView) strings() (name, path string) {
	n := min(int(v.name), len(v.text))
	return string(v.text[:n]), string(v.text[n:min(n+int(v.path), len(v.text))])
}

// heldKind is the kind of a slot.
type heldKind uint32

const (
	heldFile heldKind = iota + 1
	heldDir
	heldLink
)

// heldKey is a number of a handle: files and directories are numbered apart.
type heldKey struct {
	id   uint64
	kind heldKind
}

// heldState is the state of a held mount. Its methods may be called from any goroutine.
type heldState struct {
	file   *os.File
	bytes  []byte
	header *heldHeader
	slots  []heldSlot
	views  []heldView
	asked  []askedSlot

	mu sync.Mutex
	// at has the slot of each number, free the slots that were in use, and fresh is the first
	// that never was.
	// +checklocks:mu
	at map[heldKey]uint32
	// +checklocks:mu
	free []uint32
	// +checklocks:mu
	fresh uint32
	// links counts the slots of symlinks.
	// +checklocks:mu
	links int
}

// newHeldState makes the state of a new mount.
func newHeldState(init *fuse.InitIn, flags, maxWrite uint64) (*heldState, error) {
	fd, err := unix.MemfdCreate("hmcfs-mount", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create the state of the mount: %w", err)
	}
	file := os.NewFile(uintptr(fd), "memfd:hmcfs-mount")
	if err = file.Truncate(int64(heldSize)); err != nil {
		return nil, errors.Join(fmt.Errorf("create the state of the mount: %w", err), file.Close())
	}
	s, err := mapHeldState(file)
	if err != nil {
		return nil, err
	}
	h := s.header
	h.version, h.init, h.flags, h.maxWrite = HeldVersion, *init, flags, maxWrite
	store(&h.magic, heldMagic)
	return s, nil
}

// openHeldState opens the state of a mount that another process has left. It owns the file.
func openHeldState(file *os.File) (*heldState, error) {
	if st, err := file.Stat(); err != nil || st.Size() != int64(heldSize) {
		return nil, errors.Join(errors.New("the state of the mount is not one that this version of hmcfs makes"), err, file.Close())
	}
	s, err := mapHeldState(file)
	if err != nil {
		return nil, err
	}
	if h := s.header; h.magic != heldMagic || h.version != HeldVersion {
		return nil, errors.Join(fmt.Errorf("the state of the mount is of version %d, and this hmcfs reads version %d", h.version, HeldVersion), s.close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = uint32(min(load(&s.header.top), mostHandles)) // not more if it was damaged
	for i := range s.fresh {
		if id := load(&s.slots[i].id); id != 0 {
			s.at[heldKey{id, s.slots[i].kind}] = i
			s.countLocked(s.slots[i].kind, 1)
		} else {
			s.free = append(s.free, i)
		}
	}
	return s, nil
}

func mapHeldState(file *os.File) (*heldState, error) {
	bytes, err := unix.Mmap(int(file.Fd()), 0, heldSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map the state of the mount: %w", err), file.Close())
	}
	return &heldState{
		file: file, bytes: bytes,
		header: (*heldHeader)(unsafe.Pointer(&bytes[0])),
		slots:  unsafe.Slice((*heldSlot)(unsafe.Pointer(&bytes[slotsAt])), mostHandles),
		views:  unsafe.Slice((*heldView)(unsafe.Pointer(&bytes[viewsAt])), mostHandles),
		asked:  unsafe.Slice((*askedSlot)(unsafe.Pointer(&bytes[askedAt])), askedSlots),
		at:     map[heldKey]uint32{},
	}, nil
}

func (s *heldState) close() error {
	return errors.Join(unix.Munmap(s.bytes), s.file.Close())
}

// add records a handle, before the kernel is told of it. shows is what it has open of a view; nil otherwise. ok is false if
// there is no room.
func (s *heldState) add(h heldSlot, shows *viewNode) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.header.last = max(s.header.last, h.id) // also if there is no room: no number may come again
	return s.addLocked(h, shows)
}

// +checklocks:s.mu
func (s *heldState) addLocked(h heldSlot, shows *viewNode) (ok bool) {
	i := s.fresh
	if n := len(s.free); n > 0 {
		i, s.free = s.free[n-1], s.free[:n-1]
	} else if s.fresh == mostHandles {
		return false
	} else {
		s.fresh++
		store(&s.header.top, uint64(s.fresh))
	}
	if h.kind == heldLink || isView(metadata.Ino(h.ino)) {
		s.views[i].set(shows)
	}
	if h.reading != 0 {
		s.views[i].reading().set(nil)
	}
	slot := &s.slots[i]
	id := h.id
	h.id = 0
	*slot = h
	store(&slot.id, id)
	s.at[heldKey{id, h.kind}] = i
	s.countLocked(h.kind, 1)
	return true
}

// countLocked counts n more slots of a kind.
//
// +checklocks:s.mu
func (s *heldState) countLocked(kind heldKind, n int) {
	if kind == heldLink {
		s.links += n
	}
}

// link records how many references the kernel has to the symlink of a key, before it has more, if there is room.
func (s *heldState) link(ino metadata.Ino, key string, refs uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := s.at[heldKey{uint64(ino), heldLink}]
	switch {
	case refs == 0:
		s.removeLocked(heldKey{uint64(ino), heldLink})
	case known:
		store(&s.slots[i].unique, refs)
	case s.links < mostLinks:
		s.addLocked(heldSlot{id: uint64(ino), unique: refs, kind: heldLink}, &viewNode{name: key})
	}
}

// remove forgets a handle.
func (s *heldState) remove(id uint64, kind heldKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(heldKey{id, kind})
}

// +checklocks:s.mu
func (s *heldState) removeLocked(key heldKey) {
	i, ok := s.at[key]
	if !ok {
		return
	}
	delete(s.at, key)
	s.countLocked(key.kind, -1)
	store(&s.slots[i].id, 0)
	s.free = append(s.free, i)
}

// removed returns the numbers of passthrough files in slots that are free again.
func (s *heldState) removed() (backings []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.free {
		if slot := &s.slots[i]; slot.openFlags&fuse.FOPEN_PASSTHROUGH != 0 {
			backings = append(backings, slot.backing)
		}
	}
	return backings
}

// all returns the handles, and the symlinks.
func (s *heldState) all() []heldSlot {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]heldSlot, 0, len(s.at))
	for _, i := range s.at {
		all = append(all, s.slots[i])
	}
	return all
}

// shows returns what a handle has open of a view.
func (s *heldState) shows(h *heldSlot) (file uint64, name, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.views[s.at[heldKey{h.id, h.kind}]]
	name, path = v.strings()
	return v.file, name, path
}

// openedBy returns the handle that a request has opened.
func (s *heldState) openedBy(unique uint64, kind heldKind) (heldSlot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.at {
		if h := s.slots[i]; h.unique == unique && h.kind == kind {
			return h, true
		}
	}
	return heldSlot{}, false
}

// exchange records that a request is about to exchange the name of an inode.
func (s *heldState) exchange(unique, ino uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &s.header.exchanged[s.header.next%exchanges]
	s.header.next++
	store(&e.unique, 0)
	e.ino = ino
	store(&e.unique, unique)
}

// exchangedBy returns the inode that was given to exchange for a request.
func (s *heldState) exchangedBy(unique uint64) (ino uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.header.exchanged {
		if e := &s.header.exchanged[i]; e.unique == unique {
			return e.ino, true
		}
	}
	return 0, false
}

// leaves records that a file is about to leave publish/.
func (s *heldState) leaves(ino metadata.Ino) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.header
	store(&h.left[h.lefts%mostLeft], uint64(ino))
	h.lefts++
}

// left returns the files that were the last to leave publish/.
func (s *heldState) left() (inos []metadata.Ino) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.header.left {
		if ino := s.header.left[i]; ino != 0 {
			inos = append(inos, metadata.Ino(ino))
		}
	}
	return inos
}

// negotiated is a server of go-fuse that has answered the kernel's first message and does not serve yet.
type negotiated struct {
	server *fuse.Server
	// fd is the number at which it reads and writes. The server owns it, also when it never serves.
	fd int
	// flags are those of its answer.
	flags uint64
}

// handshake has go-fuse serve raw with the kernel's first message, from one end of a socket pair,
// and returns the server and what it answered.
func handshake(raw fuse.RawFileSystem, init *fuse.InitIn, o *fuse.MountOptions) (*negotiated, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a connection: %w", err)
	}
	ours, fd := pair[0], pair[1]
	defer func() { _ = unix.Close(ours) }()
	first := *init
	message := unsafe.Slice((*byte)(unsafe.Pointer(&first)), unsafe.Sizeof(first))
	if _, err = unix.Write(ours, message); err != nil {
		return nil, errors.Join(fmt.Errorf("send the first message: %w", err), unix.Close(fd))
	}
	o.DirectMount, o.DirectMountStrict = false, false // there is nothing to mount
	server, err := fuse.NewServer(raw, fmt.Sprintf("/dev/fd/%d", fd), o)
	if err != nil {
		return nil, err // which has closed fd
	}
	var got struct {
		fuse.OutHeader
		fuse.InitOut
	}
	reply := unsafe.Slice((*byte)(unsafe.Pointer(&got)), unsafe.Sizeof(got))
	if n, err := unix.Read(ours, reply); err != nil || n < len(reply) || got.Status != 0 {
		return nil, fmt.Errorf("no answer to the first message: %d bytes, status %d: %w", n, got.Status, err)
	}
	return &negotiated{server: server, fd: fd, flags: got.Flags64()}, nil
}

// store stores a word of the shared memory after all that was stored before, and load loads it.
func store(word *uint64, v uint64) { atomic.StoreUint64(word, v) }

func load(word *uint64) uint64 { return atomic.LoadUint64(word) }
