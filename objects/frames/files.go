package frames

import (
	"encoding/binary"
	"fmt"
)

// FileVerb is the number, in a header, of a call on files.
type FileVerb uint8

// The calls on files. docs/wire.md says which fields each of them uses.
const (
	FileOpen FileVerb = iota + 1
	FileClose
	FileStat
	FileRead
	FileWrite
	FileList
	FileMkdir
	FileRemove
	FileRename
	FileCopy
	FileLink
	FileSymlink
	FileReadlink
	FileChange
	FileGetAttribute
	FileSetAttribute
	FileListAttributes
	FileRemoveAttribute
	FileUsage
	FileSync
	// FileVerbs is the number of verbs, plus one.
	FileVerbs
)

// String returns the name of a verb, for metrics and logs.
func (v FileVerb) String() string {
	names := [FileVerbs]string{
		"file-unknown", "file-open", "file-close", "file-stat", "file-read", "file-write", "file-list", "file-mkdir",
		"file-remove", "file-rename", "file-copy", "file-link", "file-symlink", "file-readlink", "file-change",
		"file-get-attribute", "file-set-attribute", "file-list-attributes", "file-remove-attribute", "file-usage", "file-sync",
	}
	if v >= FileVerbs {
		v = 0
	}
	return names[v]
}

const (
	// MaxFileData bounds the data of a call on files, and of its answer, in bytes.
	MaxFileData = 1 << 20
	// MaxFileName bounds each name of a call on files, in bytes.
	MaxFileName = 4096
	// fileCallFixed is the size, in bytes, of the fixed part of a call on files.
	fileCallFixed = 56
	// MaxFileCall bounds the body of a call on files, in bytes.
	MaxFileCall = fileCallFixed + 2*MaxFileName + MaxFileData
	// FileAnswerFixed is the size, in bytes, of the fixed part of an answer.
	FileAnswerFixed = 24
)

// The flags of calls on files other than FileOpen, whose flags are those of open(2).
const (
	// FileNoFollow applies FileStat and FileChange to a symbolic link itself.
	FileNoFollow = 1
	// FileNoReplace and FileExchange are those of renameat2(2).
	FileNoReplace = 1
	FileExchange  = 2
	// FileOnlyDir and FileNoDir restrict what FileRemove removes.
	FileOnlyDir = 1
	FileNoDir   = 2
	// FileAttributeCreate and FileAttributeReplace are those of setxattr(2).
	FileAttributeCreate  = 1
	FileAttributeReplace = 2
)

// FileCall is the body of a call on files. Each verb uses some of its fields; the others are 0.
type FileCall struct {
	Flags, Mode uint32
	// Handle is an open file.
	Handle uint64
	// Off and Size are those of bytes in the file. FileList uses Off as the cookie of the last
	// entry.
	Off, Size uint64
	// Memory is registered memory, and MemoryOff the offset of the bytes in it. With 0 the bytes
	// are inline.
	Memory, MemoryOff uint64
	Name, Other       string
	Data              []byte
}

// AppendFileCall appends the body of a call on files, without Data, which must follow.
//
// Errors: ErrFrame for names or data that are too long.
func AppendFileCall(b []byte, q *FileCall) ([]byte, error) {
	if len(q.Name) > MaxFileName || len(q.Other) > MaxFileName || len(q.Data) > MaxFileData {
		return nil, fmt.Errorf("%w: names of %d and %d bytes, data of %d", ErrFrame, len(q.Name), len(q.Other), len(q.Data))
	}
	b = binary.LittleEndian.AppendUint32(b, q.Flags)
	b = binary.LittleEndian.AppendUint32(b, q.Mode)
	for _, n := range [...]uint64{q.Handle, q.Off, q.Size, q.Memory, q.MemoryOff} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(q.Name)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(q.Other)))
	b = append(b, 0, 0, 0, 0)
	b = append(b, q.Name...)
	return append(b, q.Other...), nil
}

// ParseFileCall decodes the body of a call on files. Data refers to body.
//
// Errors: ErrFrame.
func ParseFileCall(body []byte, q *FileCall, names *Names) error {
	c := cursor{rest: body}
	*q = FileCall{
		Flags: c.u32(), Mode: c.u32(), Handle: c.u64(), Off: c.u64(), Size: c.u64(), Memory: c.u64(), MemoryOff: c.u64(),
	}
	name, other, pad := int(c.u16()), int(c.u16()), c.u32()
	if c.err == nil && (pad != 0 || name > MaxFileName || other > MaxFileName) {
		c.err = fmt.Errorf("%w: names of %d and %d bytes, reserved bytes %#x", ErrFrame, name, other, pad)
	}
	q.Name, q.Other = names.of(c.take(name)), names.of(c.take(other))
	if q.Data = c.rest; c.err == nil && len(q.Data) > MaxFileData {
		c.err = fmt.Errorf("%w: data of %d bytes, at most %d", ErrFrame, len(q.Data), MaxFileData)
	}
	return c.err
}

// FileAnswer is the body of an answer to a call on files.
type FileAnswer struct {
	// Errno is 0 for success; otherwise Data is a text.
	Errno  uint32
	Handle uint64
	// N is the number of bytes moved, or of entries, also with an error.
	N    uint64
	Data []byte
}

// AppendFileAnswer appends the body of an answer, without Data, which must follow.
func AppendFileAnswer(b []byte, a *FileAnswer) []byte {
	b = binary.LittleEndian.AppendUint32(b, a.Errno)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, a.Handle)
	return binary.LittleEndian.AppendUint64(b, a.N)
}

// ParseFileAnswer decodes an answer. Data refers to body.
//
// Errors: ErrFrame.
func ParseFileAnswer(body []byte) (FileAnswer, error) {
	c := cursor{rest: body}
	a := FileAnswer{Errno: c.u32()}
	pad := c.u32()
	a.Handle, a.N, a.Data = c.u64(), c.u64(), c.rest
	if c.err == nil && pad != 0 {
		c.err = fmt.Errorf("%w: reserved bytes of an answer are not zero", ErrFrame)
	}
	return a, c.err
}
