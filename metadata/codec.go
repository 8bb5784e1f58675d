package metadata

// The versions of the records that this program writes. It reads these and all earlier
// ones. A change of a record's fields needs the next number, code that reads both versions,
// and a new golden file in testdata.
const (
	superVersion   = 1
	inodeVersion   = 6
	direntVersion  = 1
	linkVersion    = 1
	xattrVersion   = 1
	mappingVersion = 1
	deviceVersion  = 1
	numberVersion  = 1
	bindingVersion = 1
	bondVersion    = 1
	holderVersion  = 2
)

// fleetingVersion is the first version of an inode that can be fleeting.
const fleetingVersion = 5

// inlineVersion is the first version of an inode that can have its binding in its record.
const inlineVersion = 6

// formatVersion is the version of the store as a whole: which records exist and how they
// relate. Open refuses a store with a newer version, and upgrades one with an older
// version: format 1 has no PublishIno.
const formatVersion = 2

// Formats returns the version of the store and of each kind of record that this program writes, by name. It
// reads all earlier ones too.
func Formats() map[string]uint64 {
	return map[string]uint64{
		"store": formatVersion, "superblock": superVersion, "inode": inodeVersion, "directory entry": direntVersion, "symbolic link": linkVersion,
		"attribute": xattrVersion, "mapping": mappingVersion, "device": deviceVersion, "number": numberVersion, "binding": bindingVersion,
		"bond": bondVersion, "holder of keys": holderVersion,
	}
}

// superblock is the first record of a store.
type superblock struct {
	format  uint64
	gen     Generation
	hashKey hashKey
	created Timespec
}

func (s *superblock) fields(w *wire) {
	w.u(&s.format)
	if w.err == nil && s.format > formatVersion {
		w.err = &VersionError{What: "store", Found: s.format, Supported: formatVersion}
		w.data = nil
	}
	w.u64((*uint64)(&s.gen))
	for i := range s.hashKey {
		w.b(&s.hashKey[i])
	}
	w.time(&s.created)
}

func (s *superblock) encode() []byte {
	w := newWriter(nil, superVersion)
	s.fields(&w)
	return w.data
}

func decodeSuperblock(data []byte) (superblock, error) {
	var s superblock
	r := newReader("superblock", data, superVersion)
	s.fields(&r)
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
	// fleeting is set for a live binding without a record: it ends with the process.
	fleeting bool
	// binding is that of a live one, if it is short; otherwise it has a record of its own. It belongs
	// to the transaction.
	binding []byte
	// charged is the charge of the stored record; zero if the record is not stored yet. It
	// belongs to the transaction and is not part of the stored record.
	charged charge
}

// version returns the lowest record version that can represent the inode.
func (i *record) version() byte {
	switch {
	case len(i.binding) > 0:
		return inlineVersion
	case i.fleeting:
		return fleetingVersion
	case i.Parts > 0:
		return 4
	case i.Expires != Timespec{} || i.Taken:
		return 3
	case i.Bound != Unbound:
		return 2
	}
	return 1
}

func (i *record) fields(w *wire) {
	w.u64((*uint64)(&i.Gen))
	w.u32((*uint32)(&i.Mode))
	w.u32(&i.UID)
	w.u32(&i.GID)
	w.u32(&i.Nlink)
	w.u32(&i.Rdev)
	w.u(&i.Size)
	w.time(&i.Atime)
	w.time(&i.Mtime)
	w.time(&i.Ctime)
	w.time(&i.Btime)
	w.u((*uint64)(&i.Epoch))
	w.u(&i.Allocated)
	w.u((*uint64)(&i.Parent))
	w.u32(&i.xattrs)
	w.u(&i.maps)
	w.u(&i.firstMap)
	w.str((*string)(&i.Device))
	w.str(&i.Name)
	w.str(&i.Target)
	w.str(&i.Key)
	w.str(&i.Path)
	if w.version >= 2 {
		if w.b((*byte)(&i.Bound)); w.reading && i.Bound > BoundLost {
			w.fail("unknown binding")
		}
	}
	if w.version >= 3 {
		w.time(&i.Expires)
		w.flag(&i.Taken)
	}
	if w.version >= 4 {
		w.u32(&i.Parts)
	}
	if w.version >= fleetingVersion {
		if w.flag(&i.fleeting); w.reading && i.Bound != BoundLive {
			w.fail("with a binding, but not bound")
		}
	}
	if w.version >= inlineVersion {
		if w.bytes(&i.binding); w.reading && i.fleeting {
			w.fail("fleeting, but with a binding")
		}
	}
	if w.reading && w.err == nil && i.version() != w.version {
		w.fail("version does not match its fields")
	}
}

func (i *record) encode(b []byte) []byte {
	w := newWriter(b, i.version())
	i.fields(&w)
	return w.data
}

func decodeRecord(ino Ino, data []byte) (record, error) {
	i := record{Inode: Inode{Ino: ino}}
	r := newReader("inode", data, inodeVersion)
	i.fields(&r)
	return i, r.done()
}

// dirent is a directory entry, or a tombstone if its inode is 0.
type dirent struct {
	ino     Ino
	mode    Mode // the type bits
	chained bool // later slots contain, or contained, other names with the same hash
	name    string
}

func (d *dirent) fields(w *wire) {
	w.flag(&d.chained)
	w.u((*uint64)(&d.ino))
	w.u32((*uint32)(&d.mode))
	w.str(&d.name)
}

func (d *dirent) encode(b []byte) []byte {
	w := newWriter(b, direntVersion)
	d.fields(&w)
	return w.data
}

func decodeDirent(data []byte) (dirent, error) {
	var d dirent
	r := newReader("directory entry", data, direntVersion)
	d.fields(&r)
	return d, r.done()
}

func (m *Mapping) fields(w *wire) {
	w.flag(&m.Pinned)
	w.u(&m.Len)
	w.u(&m.Written)
	w.u((*uint64)(&m.Epoch))
	w.u((*uint64)(&m.Allocation))
	w.u(&m.Off)
	w.str((*string)(&m.Device))
}

func encodeMapping(b []byte, m *Mapping) []byte {
	w := newWriter(b, mappingVersion)
	m.fields(&w)
	return w.data
}

func decodeMapping(off uint64, data []byte) (Mapping, error) {
	m := Mapping{FileOff: off}
	r := newReader("mapping", data, mappingVersion)
	m.fields(&r)
	return m, r.done()
}

func (d *DeviceRecord) fields(w *wire) {
	w.u((*uint64)(&d.Ino))
	w.u((*uint64)(&d.Epoch))
}

func (d *DeviceRecord) encode(b []byte) []byte {
	w := newWriter(b, deviceVersion)
	d.fields(&w)
	return w.data
}

func decodeDevice(name DeviceName, data []byte) (DeviceRecord, error) {
	d := DeviceRecord{Name: name}
	r := newReader("device", data, deviceVersion)
	d.fields(&r)
	return d, r.done()
}

func decodeBinding(data []byte) ([]byte, error) {
	r := newReader("binding", data, bindingVersion)
	return r.data, r.err
}

// keyHolder names the inode, or the part of one, that has a key.
type keyHolder struct {
	ino  Ino
	part string
}

func (h *keyHolder) fields(w *wire) {
	w.u((*uint64)(&h.ino))
	if w.version < 2 {
		return
	}
	if w.str(&h.part); w.reading && w.err == nil && h.part == "" {
		w.fail("version does not match its fields")
	}
}

// encodeKeyHolder encodes what has a key, in the lowest version that can represent it.
func encodeKeyHolder(b []byte, h keyHolder) []byte {
	version := byte(1)
	if h.part != "" {
		version = 2
	}
	w := newWriter(b, version)
	h.fields(&w)
	return w.data
}

func decodeKeyHolder(data []byte) (h keyHolder, err error) {
	r := newReader("key", data, holderVersion)
	h.fields(&r)
	return h, r.done()
}

// encodeNumber encodes a record of a single number: the next inode number, or 1 for a record
// that only marks its presence.
func encodeNumber(b []byte, v uint64) []byte {
	w := newWriter(b, numberVersion)
	w.u(&v)
	return w.data
}

func decodeNumber(what string, data []byte) (v uint64, err error) {
	r := newReader(what, data, numberVersion)
	r.u(&v)
	return v, r.done()
}

// encodeLink encodes the record of a further link: its name.
func encodeLink(b []byte, name string) []byte {
	w := newWriter(b, linkVersion)
	w.str(&name)
	return w.data
}

func decodeLink(data []byte) (name string, err error) {
	r := newReader("link", data, linkVersion)
	r.str(&name)
	return name, r.done()
}

// encodeXattr encodes the record of an attribute's value.
func encodeXattr(b, value []byte) []byte {
	return append(append(b, xattrVersion), value...)
}

func decodeXattr(data []byte) ([]byte, error) {
	r := newReader("attribute", data, xattrVersion)
	return r.data, r.err
}

// charge is an inode's contribution to its owner's usage.
type charge struct {
	uid   uint32
	names uint64
}

func (i *record) charge() charge { return charge{i.UID, i.names()} }

// names returns the number of the inode's names, including the keys of its parts.
func (i *record) names() uint64 {
	if i.IsDir() {
		return uint64(min(i.Nlink, 1))
	}
	if i.Nlink == 0 {
		return 0
	}
	return uint64(i.Nlink) + uint64(i.Parts)
}

// isPublishDir reports whether an inode can be PublishIno.
func (i *record) isPublishDir() bool {
	return i.IsDir() && i.Device == "" && i.Parent == RootIno && i.Name == publishName
}
