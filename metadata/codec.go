package metadata

// The versions of the records that this program writes. It reads these and all earlier
// ones. A change of a record's fields needs the next number, code that reads both versions,
// and a new golden file in testdata.
const (
	superVersion   = 1
	inodeVersion   = 3
	direntVersion  = 1
	linkVersion    = 1
	xattrVersion   = 1
	mappingVersion = 1
	deviceVersion  = 1
	numberVersion  = 1
	bindingVersion = 1
	bondVersion    = 1
)

// formatVersion is the version of the store as a whole: which records exist and how they
// relate. Open refuses a store with a newer version, and upgrades one with an older
// version: format 1 has no PublishIno.
const formatVersion = 2

// superblock is the first record of a store.
type superblock struct {
	format  uint64
	gen     Generation
	hashKey hashKey
	created Timespec
}

func (s *superblock) encode() []byte {
	w := wireWriter{superVersion}
	w.u(s.format)
	w.u64(uint64(s.gen))
	w = append(w, s.hashKey[:]...)
	w.time(s.created)
	return w
}

func decodeSuperblock(data []byte) (superblock, error) {
	r := newWireReader("superblock", data, superVersion)
	s := superblock{format: r.u()}
	if r.err == nil && s.format > formatVersion {
		return s, &VersionError{What: "store", Found: s.format, Supported: formatVersion}
	}
	s.gen = Generation(r.u64())
	for i := range s.hashKey {
		s.hashKey[i] = r.b()
	}
	s.created = r.time()
	return s, r.done()
}

// record is an inode with fields that only the store uses: counts that make it unnecessary
// to scan for records that do not exist.
type record struct {
	Inode
	// xattrs is the number of extended attributes of the inode.
	xattrs uint32
	// maps is the number of mappings of the content, and firstMap the file offset of the
	// first one.
	maps     uint64
	firstMap uint64
	// charged is the charge of the stored record; zero if the record is not stored yet. It
	// belongs to the transaction and is not part of the stored record.
	charged charge
}

// version returns the lowest record version that can represent the inode.
func (i *record) version() byte {
	switch {
	case i.Expires != Timespec{} || i.Taken:
		return 3
	case i.Bound != Unbound:
		return 2
	}
	return 1
}

// inodeTaken is the flag for an inode with Taken set.
const inodeTaken = 1

func (i *record) encode(b []byte) []byte {
	version := i.version()
	w := wireWriter(append(b, version))
	w.u64(uint64(i.Gen))
	w.u(uint64(i.Mode))
	w.u(uint64(i.UID))
	w.u(uint64(i.GID))
	w.u(uint64(i.Nlink))
	w.u(uint64(i.Rdev))
	w.u(i.Size)
	w.time(i.Atime)
	w.time(i.Mtime)
	w.time(i.Ctime)
	w.time(i.Btime)
	w.u(uint64(i.Epoch))
	w.u(i.Allocated)
	w.u(uint64(i.Parent))
	w.u(uint64(i.xattrs))
	w.u(i.maps)
	w.u(i.firstMap)
	w.str(string(i.Device))
	w.str(i.Name)
	w.str(i.Target)
	w.str(i.Key)
	w.str(i.Path)
	if version >= 2 {
		w.b(byte(i.Bound))
	}
	if version >= 3 {
		var flags byte
		if i.Taken {
			flags |= inodeTaken
		}
		w.time(i.Expires)
		w.b(flags)
	}
	return w
}

func decodeRecord(ino Ino, data []byte) (record, error) {
	r := newWireReader("inode", data, inodeVersion)
	var i record
	i.Ino = ino
	i.Gen = Generation(r.u64())
	i.Mode = Mode(r.u32())
	i.UID = r.u32()
	i.GID = r.u32()
	i.Nlink = r.u32()
	i.Rdev = r.u32()
	i.Size = r.u()
	i.Atime = r.time()
	i.Mtime = r.time()
	i.Ctime = r.time()
	i.Btime = r.time()
	i.Epoch = Epoch(r.u())
	i.Allocated = r.u()
	i.Parent = Ino(r.u())
	i.xattrs = r.u32()
	i.maps = r.u()
	i.firstMap = r.u()
	i.Device = DeviceName(r.str())
	i.Name = r.str()
	i.Target = r.str()
	i.Key = r.str()
	i.Path = r.str()
	i.readNewer(r)
	return i, r.done()
}

// readNewer reads the fields that were added after version 1.
func (i *record) readNewer(r *wireReader) {
	if r.version >= 2 {
		if i.Bound = BindState(r.b()); i.Bound > BoundLost {
			r.fail("unknown binding")
		}
	}
	if r.version >= 3 {
		i.Expires = r.time()
		flags := r.b()
		if flags&^inodeTaken != 0 {
			r.fail("unknown flags")
		}
		i.Taken = flags&inodeTaken != 0
	}
	if r.err == nil && i.version() != r.version {
		r.fail("version does not match its fields")
	}
}

// dirent is a directory entry, or a tombstone if its inode is 0.
type dirent struct {
	ino     Ino
	mode    Mode // the type bits
	chained bool // later slots contain, or contained, other names with the same hash
	name    string
}

const direntChained = 1

func (d *dirent) encode(b []byte) []byte {
	w := wireWriter(append(b, direntVersion))
	var flags byte
	if d.chained {
		flags |= direntChained
	}
	w.b(flags)
	w.u(uint64(d.ino))
	w.u(uint64(d.mode))
	w.str(d.name)
	return w
}

func decodeDirent(data []byte) (dirent, error) {
	r := newWireReader("directory entry", data, direntVersion)
	flags := r.b()
	if flags&^direntChained != 0 {
		r.fail("unknown flags")
	}
	d := dirent{chained: flags&direntChained != 0}
	d.ino = Ino(r.u())
	d.mode = Mode(r.u32())
	d.name = r.str()
	return d, r.done()
}

func encodeMapping(b []byte, m *Mapping) []byte {
	w := wireWriter(append(b, mappingVersion))
	var flags byte
	if m.Pinned {
		flags = 1
	}
	w.b(flags)
	w.u(m.Len)
	w.u(m.Written)
	w.u(uint64(m.Epoch))
	w.u(uint64(m.Allocation))
	w.u(m.Off)
	w.str(string(m.Device))
	return w
}

func decodeMapping(off uint64, data []byte) (Mapping, error) {
	r := newWireReader("mapping", data, mappingVersion)
	flags := r.b()
	if flags > 1 {
		r.fail("unknown flags")
	}
	m := Mapping{FileOff: off, Pinned: flags == 1}
	m.Len = r.u()
	m.Written = r.u()
	m.Epoch = Epoch(r.u())
	m.Allocation = AllocationID(r.u())
	m.Off = r.u()
	m.Device = DeviceName(r.str())
	return m, r.done()
}

func (d *DeviceRecord) encode(b []byte) []byte {
	w := wireWriter(append(b, deviceVersion))
	w.u(uint64(d.Ino))
	w.u(uint64(d.Epoch))
	return w
}

func decodeDevice(name DeviceName, data []byte) (DeviceRecord, error) {
	r := newWireReader("device", data, deviceVersion)
	d := DeviceRecord{Name: name, Ino: Ino(r.u()), Epoch: Epoch(r.u())}
	return d, r.done()
}

func decodeBinding(data []byte) ([]byte, error) {
	r := newWireReader("binding", data, bindingVersion)
	return r.rest, r.err
}

// encodeNumber encodes a record of a single number: the next inode number, the inode of a
// key, or 1 for a record that only marks its presence.
func encodeNumber(b []byte, v uint64) []byte {
	w := wireWriter(append(b, numberVersion))
	w.u(v)
	return w
}

func decodeNumber(what string, data []byte) (uint64, error) {
	r := newWireReader(what, data, numberVersion)
	v := r.u()
	return v, r.done()
}

// encodeLink encodes the record of a further link: its name.
func encodeLink(b []byte, name string) []byte {
	w := wireWriter(append(b, linkVersion))
	w.str(name)
	return w
}

func decodeLink(data []byte) (string, error) {
	r := newWireReader("link", data, linkVersion)
	name := r.str()
	return name, r.done()
}

// encodeXattr encodes the record of an attribute's value.
func encodeXattr(b, value []byte) []byte {
	return append(append(b, xattrVersion), value...)
}

func decodeXattr(data []byte) ([]byte, error) {
	r := newWireReader("attribute", data, xattrVersion)
	return r.rest, r.err
}
