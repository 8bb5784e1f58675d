package metadata

import (
	"encoding/binary"
	"fmt"
	"math"
)

// wire writes the fields of a record, or reads them, in order: one list of fields serves
// both. The first fault of a record that is read is kept, so that only done has to check for
// one.
type wire struct {
	reading bool
	what    string // the record that is read
	version byte
	data    []byte // what was written, or what is left to read
	err     error
}

// newWriter starts a record of a version at the end of b.
func newWriter(b []byte, version byte) wire {
	return wire{version: version, data: append(b, version)}
}

// newReader starts reading a record and rejects a version newer than supported.
func newReader(what string, data []byte, supported byte) wire {
	w := wire{reading: true, what: what, data: data}
	w.b(&w.version)
	switch {
	case w.err != nil:
	case w.version == 0:
		w.fail("version 0")
	case w.version > supported:
		w.err = &VersionError{What: what, Found: uint64(w.version), Supported: uint64(supported)}
	}
	return w
}

// fail records a fault of a record that is read; nothing more is read from it.
func (w *wire) fail(why string) {
	if w.err == nil {
		w.err = fmt.Errorf("%w: %s: %s", ErrCorrupt, w.what, why)
	}
	w.data = nil
}

// b transfers a byte.
func (w *wire) b(v *byte) {
	switch {
	case !w.reading:
		w.data = append(w.data, *v)
	case len(w.data) == 0:
		w.fail("truncated")
	default:
		*v, w.data = w.data[0], w.data[1:]
	}
}

// flag transfers a byte that contains one flag.
func (w *wire) flag(v *bool) {
	var flags byte
	if *v {
		flags = 1
	}
	w.b(&flags)
	if flags > 1 {
		w.fail("unknown flags")
	}
	*v = flags == 1
}

// u transfers a number of variable length.
func (w *wire) u(v *uint64) {
	if !w.reading {
		if *v < 0x80 { // most are
			w.data = append(w.data, byte(*v))
		} else {
			w.data = binary.AppendUvarint(w.data, *v)
		}
		return
	}
	n, size := binary.Uvarint(w.data)
	if size <= 0 {
		w.fail("malformed number")
		return
	}
	*v, w.data = n, w.data[size:]
}

// u32 is u for 32 bits.
func (w *wire) u32(v *uint32) {
	n := uint64(*v)
	w.u(&n)
	if n > math.MaxUint32 {
		w.fail("number out of range")
		return
	}
	*v = uint32(n)
}

// i is u for a signed number, in zigzag encoding as in binary.AppendVarint.
func (w *wire) i(v *int64) {
	n := uint64(*v<<1) ^ uint64(*v>>63)
	w.u(&n)
	*v = int64(n>>1) ^ -int64(n&1)
}

// u64 transfers a number in 8 bytes.
func (w *wire) u64(v *uint64) {
	switch {
	case !w.reading:
		w.data = binary.BigEndian.AppendUint64(w.data, *v)
	case len(w.data) < 8:
		w.fail("truncated")
	default:
		*v, w.data = binary.BigEndian.Uint64(w.data), w.data[8:]
	}
}

// str transfers a string, after its length.
func (w *wire) str(v *string) {
	n := uint64(len(*v))
	if w.u(&n); w.reading {
		*v = string(w.part(n, "string"))
	} else {
		w.data = append(w.data, *v...)
	}
}

// bytes is str for bytes. Those that are read are part of the record.
func (w *wire) bytes(v *[]byte) {
	n := uint64(len(*v))
	if w.u(&n); w.reading {
		*v = w.part(n, "bytes")
	} else {
		w.data = append(w.data, *v...)
	}
}

// part reads n bytes, which are part of the record; nil if it has fewer.
func (w *wire) part(n uint64, what string) []byte {
	if n > uint64(len(w.data)) {
		w.fail("truncated " + what)
		return nil
	}
	p := w.data[:n:n]
	w.data = w.data[n:]
	return p
}

// time transfers a time.
func (w *wire) time(t *Timespec) {
	w.i(&t.Sec)
	w.u32(&t.Nsec)
	if w.reading && t.Nsec >= 1e9 {
		w.fail("nanoseconds out of range")
	}
}

// done returns the first fault of a record that was read; unread bytes are one.
func (w *wire) done() error {
	if w.err == nil && len(w.data) > 0 {
		w.fail("trailing bytes")
	}
	return w.err
}
