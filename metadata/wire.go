package metadata

import (
	"encoding/binary"
	"fmt"
	"math"
)

// wireWriter appends the fields of a record.
type wireWriter []byte

func (w *wireWriter) u(v uint64)   { *w = binary.AppendUvarint(*w, v) }
func (w *wireWriter) i(v int64)    { *w = binary.AppendVarint(*w, v) }
func (w *wireWriter) u64(v uint64) { *w = binary.BigEndian.AppendUint64(*w, v) }
func (w *wireWriter) b(v byte)     { *w = append(*w, v) }

func (w *wireWriter) str(s string) {
	w.u(uint64(len(s)))
	*w = append(*w, s...)
}

func (w *wireWriter) time(t Timespec) {
	w.i(t.Sec)
	w.u(uint64(t.Nsec))
}

// wireReader reads the fields of a record in order. The first fault is kept, so that only
// done has to check for one.
type wireReader struct {
	what    string
	version byte
	rest    []byte
	err     error
}

// newWireReader starts reading a record and rejects a version newer than supported.
func newWireReader(what string, data []byte, supported byte) *wireReader {
	r := &wireReader{what: what, rest: data}
	r.version = r.b()
	switch {
	case r.err != nil:
	case r.version == 0:
		r.fail("version 0")
	case r.version > supported:
		r.err = &VersionError{What: what, Found: uint64(r.version), Supported: uint64(supported)}
	}
	return r
}

func (r *wireReader) fail(why string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s: %s", ErrCorrupt, r.what, why)
	}
	r.rest = nil
}

func (r *wireReader) b() byte {
	if len(r.rest) == 0 {
		r.fail("truncated")
		return 0
	}
	v := r.rest[0]
	r.rest = r.rest[1:]
	return v
}

func (r *wireReader) u() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("malformed number")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *wireReader) u32() uint32 {
	v := r.u()
	if v > math.MaxUint32 {
		r.fail("number out of range")
		return 0
	}
	return uint32(v)
}

func (r *wireReader) i() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail("malformed number")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *wireReader) u64() uint64 {
	if len(r.rest) < 8 {
		r.fail("truncated")
		return 0
	}
	v := binary.BigEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
	return v
}

func (r *wireReader) str() string {
	n := r.u()
	if n > uint64(len(r.rest)) {
		r.fail("truncated string")
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *wireReader) time() Timespec {
	t := Timespec{Sec: r.i(), Nsec: r.u32()}
	if t.Nsec >= 1e9 {
		r.fail("nanoseconds out of range")
	}
	return t
}

// done returns the first fault; unread bytes are one.
func (r *wireReader) done() error {
	if r.err == nil && len(r.rest) > 0 {
		r.fail("trailing bytes")
	}
	return r.err
}
