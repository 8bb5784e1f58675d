package metadata

import (
	"cmp"
	"fmt"
	"strings"
)

// ProblemKind is a kind of inconsistency between records.
type ProblemKind int

// The kinds of problems. None of them can result from a crash; each indicates a bug in the
// program or in the KV.
const (
	// CorruptRecord is a record that cannot be decoded. Repair removes it.
	CorruptRecord ProblemKind = iota + 1
	// DanglingEntry is an entry whose inode or directory is missing. Repair
	// removes it.
	DanglingEntry
	// WrongEntryType is an entry with a file type other than its inode's.
	WrongEntryType
	// SecondEntry is a further entry of a directory. Repair removes it.
	SecondEntry
	// Orphan is an inode without an entry. Repair adds an entry for it at its recorded
	// parent and name, or else in its device's directory as #NUMBER, or else removes the
	// inode.
	Orphan
	// Circle is a directory that is its own ancestor. Repair moves it into its device's
	// directory as #NUMBER.
	Circle
	// WrongPrimary is an inode whose primary link is not one of its entries.
	WrongPrimary
	// MissingLink is an entry that is not recorded in its inode.
	MissingLink
	// DanglingLink is a recorded link without an entry. Repair removes it.
	DanglingLink
	// WrongNlink is a link count that differs from the number of links.
	WrongNlink
	// WrongSize is a directory size that differs from the number of entries.
	WrongSize
	// WrongCount is a wrong count of an inode's attributes, mappings or parts with keys.
	WrongCount
	// DanglingKey is a key that refers to an inode that does not have it. Repair removes
	// it.
	DanglingKey
	// MissingKey is a key that an inode has but that does not refer to it. Repair makes the
	// key refer to it, unless another inode has it by now.
	MissingKey
	// DanglingRecords are attributes, mappings or links without an inode.
	// Repair removes them.
	DanglingRecords
	// DanglingDevice is a device whose directory is missing. Repair removes
	// the device.
	DanglingDevice
	// MissingDevice is a directory in the root that belongs to no device. Repair makes it a
	// device's.
	MissingDevice
	// DanglingBinding is a binding of an inode that is not bound. Repair
	// removes it.
	DanglingBinding
	// MissingBinding is a bound inode without a binding. Repair marks it as lost.
	MissingBinding
	// MissingPublish is a store without PublishIno. Repair creates it.
	MissingPublish
	// DanglingExpiry is an expiry record of an inode that does not expire at that time.
	// Repair removes it.
	DanglingExpiry
	// MissingExpiry is an inode that expires but has no expiry record. Repair adds one.
	MissingExpiry
	// DanglingPart is a part of a file whose key does not refer to it. Repair recreates the
	// key, unless something else has it by now or the file is missing; then it removes the
	// part's record.
	DanglingPart
	// WrongTaken is an inode that is marked as received but is not in PublishIno. Repair
	// clears the mark.
	WrongTaken
)

// texts returns the description of the kind in words, and that of its remedy.
func (k ProblemKind) texts() (name, remedy string) {
	texts := [...][2]string{
		CorruptRecord:   {"corrupt record", ""},
		DanglingEntry:   {"entry without inode or directory", "the entry is removed"},
		WrongEntryType:  {"entry of the wrong type", "the entry gets the inode's type"},
		SecondEntry:     {"directory with a second entry", "the second entry is removed"},
		Orphan:          {"inode without entry", "an entry is added for it"},
		Circle:          {"directory inside itself", "it is moved out of itself"},
		WrongPrimary:    {"wrong primary link", "one of its entries becomes the primary link"},
		MissingLink:     {"missing link", "the link is added to the inode"},
		DanglingLink:    {"link without entry", "the link is removed"},
		WrongNlink:      {"wrong link count", "recounted"},
		WrongSize:       {"wrong directory size", "recounted"},
		WrongCount:      {"wrong count of attributes, mappings or parts", "recounted"},
		DanglingKey:     {"key without inode", "the key is removed"},
		MissingKey:      {"missing key", "the key is recreated for the inode, unless another inode has it"},
		DanglingRecords: {"attributes, mappings or links without inode", "they are removed"},
		DanglingDevice:  {"device without directory", "the device is removed"},
		MissingDevice:   {"directory without device", "the device is recreated for the directory"},
		DanglingBinding: {"binding of an inode that is not bound", "the binding is removed"},
		MissingBinding:  {"bound inode without binding", "the inode is marked as lost"},
		MissingPublish:  {"publish/ is missing", "it is created"},
		DanglingExpiry:  {"expiry of an inode that does not expire then", "the expiry is removed"},
		MissingExpiry:   {"missing expiry", "the expiry is recreated from the inode"},
		DanglingPart:    {"part of a file without key", "the key is recreated for the part, unless it names something else"},
		WrongTaken:      {"marked as received, outside publish/", "the mark is removed"},
	}
	if k <= 0 || int(k) >= len(texts) {
		return fmt.Sprintf("problem %d", int(k)), ""
	}
	return texts[k][0], texts[k][1]
}

// String describes the kind in words.
func (k ProblemKind) String() string {
	name, _ := k.texts()
	return name
}

// Problem is one inconsistency, found by Check and fixed by Repair.
type Problem struct {
	Kind   ProblemKind
	Ino    Ino // the inode concerned, or 0
	Parent Ino // the directory concerned, or 0
	Name   string
	Key    string // the key concerned; for a corrupt record, its key in the KV
	Part   string // the part concerned, for a DanglingPart
	Device DeviceName
	Want   uint64 // what a count should be
	Got    uint64 // what it is
	cookie Cookie
	// expires is the time of a DanglingExpiry.
	expires Timespec
}

// String describes the problem in one line.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Kind.String())
	if p.Ino != 0 {
		fmt.Fprintf(&b, ": inode %d", p.Ino)
	}
	if p.Parent != 0 {
		fmt.Fprintf(&b, ": entry %q in directory %d", p.Name, p.Parent)
	}
	if p.Key != "" {
		fmt.Fprintf(&b, ": key %q", p.Key)
	}
	if p.Part != "" {
		fmt.Fprintf(&b, ": part %q", p.Part)
	}
	if p.Device != "" {
		fmt.Fprintf(&b, ": device %q", p.Device)
	}
	if p.Want != p.Got {
		fmt.Fprintf(&b, ": %d instead of %d", p.Got, p.Want)
	}
	return b.String()
}

// Remedy describes in words how Repair fixed the problem.
func (p Problem) Remedy() string {
	_, remedy := p.Kind.texts()
	if p.Kind != CorruptRecord || p.Key == "" {
		return remedy
	}
	// What was removed with an undecodable record.
	remedies := map[byte]string{
		kindInode:   "the inode is removed",
		kindDirent:  "the entry is removed",
		kindLink:    "the link is removed",
		kindXattr:   "the attribute is removed",
		kindBinding: "the binding is removed: the file is lost",
		kindExpiry:  "the expiry is removed",
		kindPart:    "the key of a part of the file is removed",
		kindMapping: "the mapping is removed: that part of the file reads as zeros",
	}
	return cmp.Or(remedies[p.Key[0]], "the record is removed")
}
