package frames

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/hmcfs/hmcfs/devices"
)

// AppendStat appends a description of a file.
func AppendStat(b []byte, st *syscall.Stat_t) []byte {
	for _, n := range [...]uint64{st.Ino, uint64(st.Size), uint64(st.Blocks)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	for _, n := range [...]uint32{st.Mode, uint32(st.Nlink), st.Uid, st.Gid, uint32(st.Rdev), uint32(st.Blksize)} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	times := [...]syscall.Timespec{st.Atim, st.Mtim, st.Ctim}
	for _, t := range times {
		b = binary.LittleEndian.AppendUint64(b, uint64(t.Sec))
	}
	for _, t := range times {
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Nsec))
	}
	return append(b, 0, 0, 0, 0)
}

// assign sets a field whose type differs between architectures.
func assign[T ~int32 | ~int64 | ~uint32 | ~uint64](to *T, v uint32) { *to = T(v) }

// ParseStat decodes a description of a file.
//
// Errors: ErrFrame.
func ParseStat(b []byte) (st syscall.Stat_t, err error) {
	c := cursor{rest: b}
	st.Ino, st.Size, st.Blocks = c.u64(), int64(c.u64()), int64(c.u64())
	st.Mode = c.u32()
	assign(&st.Nlink, c.u32())
	st.Uid, st.Gid, st.Rdev = c.u32(), c.u32(), uint64(c.u32())
	assign(&st.Blksize, c.u32())
	times := [...]*syscall.Timespec{&st.Atim, &st.Mtim, &st.Ctim}
	for _, t := range times {
		t.Sec = int64(c.u64())
	}
	for _, t := range times {
		t.Nsec = int64(c.u32())
	}
	c.u32()
	return st, c.end()
}

// FileEntry is an entry of a directory.
type FileEntry struct {
	// Next is the cookie after which the listing continues.
	Next, Ino uint64
	// Type has the type bits of the mode.
	Type uint32
	Name string
}

const (
	typeShift      = 12
	fileEntryFixed = 18
)

// AppendFileEntry appends an entry, whose name has at most 255 bytes. ok is false if it does not
// fit into the rest of MaxFileData, of which b has used used.
func AppendFileEntry(b []byte, used int, e *FileEntry) (_ []byte, ok bool) {
	if used+fileEntryFixed+len(e.Name) > MaxFileData {
		return b, false
	}
	b = binary.LittleEndian.AppendUint64(b, e.Next)
	b = binary.LittleEndian.AppendUint64(b, e.Ino)
	b = append(b, byte(e.Type>>typeShift), byte(len(e.Name)))
	return append(b, e.Name...), true
}

// ParseFileEntries decodes entries.
//
// Errors: ErrFrame.
func ParseFileEntries(b []byte) ([]FileEntry, error) {
	c := cursor{rest: b}
	var out []FileEntry
	for len(c.rest) > 0 {
		e := FileEntry{Next: c.u64(), Ino: c.u64(), Type: uint32(c.u8()) << typeShift}
		if e.Name = string(c.take(int(c.u8()))); c.err != nil {
			return nil, c.err
		}
		out = append(out, e)
	}
	return out, nil
}

// The attributes that a Change sets.
const (
	ChangeMode = 1 << iota
	ChangeUID
	ChangeGID
	ChangeSize
	ChangeAtime
	ChangeMtime
	changeBits
)

// Change is the data of FileChange. Nanoseconds of UTIME_NOW set a time to the present.
type Change struct {
	// Set has a bit for each attribute that is set.
	Set            uint32
	Mode, UID, GID uint32
	Size           uint64
	Atime, Mtime   syscall.Timespec
}

// AppendChange appends a change.
func AppendChange(b []byte, c *Change) []byte {
	for _, n := range [...]uint32{c.Set, c.Mode, c.UID, c.GID} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	for _, n := range [...]uint64{c.Size, uint64(c.Atime.Sec), uint64(c.Mtime.Sec)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(c.Atime.Nsec))
	return binary.LittleEndian.AppendUint32(b, uint32(c.Mtime.Nsec))
}

// utimeNow is UTIME_NOW.
const utimeNow = 1<<30 - 1

// ParseChange decodes a change.
//
// Errors: ErrFrame.
func ParseChange(b []byte) (Change, error) {
	c := cursor{rest: b}
	out := Change{Set: c.u32(), Mode: c.u32(), UID: c.u32(), GID: c.u32(), Size: c.u64()}
	out.Atime.Sec, out.Mtime.Sec = int64(c.u64()), int64(c.u64())
	out.Atime.Nsec, out.Mtime.Nsec = int64(c.u32()), int64(c.u32())
	for _, nsec := range [...]int64{out.Atime.Nsec, out.Mtime.Nsec} {
		if c.err == nil && (out.Set >= changeBits || nsec >= 1e9 && nsec != utimeNow) {
			c.err = fmt.Errorf("%w: a change with the bits %#x and %d nanoseconds", ErrFrame, out.Set, nsec)
		}
	}
	return out, c.end()
}

// AppendUsage appends the use of a device.
func AppendUsage(b []byte, u devices.Usage) []byte {
	for _, n := range [...]devices.Size{u.Total, u.Used, u.Free} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// ParseUsage decodes the use of a device.
//
// Errors: ErrFrame.
func ParseUsage(b []byte) (devices.Usage, error) {
	c := cursor{rest: b}
	u := devices.Usage{Total: devices.Size(c.u64()), Used: devices.Size(c.u64()), Free: devices.Size(c.u64())}
	return u, c.end()
}
