package tensors

import (
	"encoding/binary"
	"fmt"
	"io"
)

// parseNPY reads the header of a .npy file of version 1, 2 or 3: a Python literal such as
//
//	{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//
// Data after the array, such as a second array, is not an error.
func parseNPY(r io.ReaderAt, size uint64) (Tensor, error) {
	head, err := npyHead(r, size)
	if err != nil {
		return Tensor{}, err
	}
	s := newScanner(r, head.off, head.n)
	s.longs = head.version < 3
	t := s.array()
	s.end()
	if s.err != nil {
		return Tensor{}, s.err
	}
	t.Off = head.off + head.n
	if t.Len, err = byteLen(t.Type, t.Shape); err != nil {
		return Tensor{}, err
	}
	if t.Len > size-t.Off {
		return Tensor{}, fmt.Errorf("%w: an array of %d bytes after a header of %d does not fit a file of %d", ErrFormat, t.Len, t.Off, size)
	}
	return t, nil
}

// npyLiteral describes the literal in a file: the format's version, and the range of the
// literal.
type npyLiteral struct {
	version byte
	off, n  uint64
}

// npyHead reads the part before the literal.
func npyHead(r io.ReaderAt, size uint64) (head npyLiteral, err error) {
	var off, n uint64
	const at, short, long = uint64(len(npyMagic)), 10, 12
	var p [long]byte
	if size < short {
		return head, fmt.Errorf("%w: %d bytes are too few for a .npy file", ErrFormat, size)
	}
	if err := readFull(r, p[:short], 0); err != nil {
		return head, err
	}
	if string(p[:at]) != npyMagic {
		return head, fmt.Errorf("%w: it does not begin like a .npy file", ErrFormat)
	}
	switch {
	case p[at] == 1 && p[at+1] == 0:
		off, n = short, uint64(binary.LittleEndian.Uint16(p[short-2:]))
	case (p[at] == 2 || p[at] == 3) && p[at+1] == 0:
		if size < long {
			return head, fmt.Errorf("%w: %d bytes are too few for a .npy file", ErrFormat, size)
		}
		if err := readFull(r, p[:], 0); err != nil {
			return head, err
		}
		off, n = long, uint64(binary.LittleEndian.Uint32(p[long-4:]))
	default:
		return head, fmt.Errorf("%w: version %d.%d of the .npy format is not supported; 1.0 to 3.0 are", ErrFormat, p[at], p[at+1])
	}
	return npyLiteral{version: p[at], off: off, n: n}, checkHeader(n, off, size)
}

func (s *scanner) array() Tensor {
	var t Tensor
	var haveType, haveOrder, haveShape bool
	s.expect('{')
	for first := true; s.moreLiteral(first, '}'); first = false {
		key := s.literal()
		s.expect(':')
		switch {
		case key == "descr" && !haveType:
			haveType = true
			t.Type = s.descr()
		case key == "fortran_order" && !haveOrder:
			haveOrder = true
			t.Fortran = s.truth()
		case key == "shape" && !haveShape:
			haveShape = true
			t.Shape = s.tuple()
		default:
			s.fail("unexpected or repeated key %.40q", key)
		}
	}
	if !haveType || !haveOrder || !haveShape {
		s.fail("missing descr, fortran_order or shape")
	}
	return t
}

// moreLiteral is more for Python's lists, which may have a comma after the last item.
func (s *scanner) moreLiteral(first bool, end byte) bool {
	if !s.more(first, end) {
		return false
	}
	if !first && s.token() == end {
		s.byte()
		return false
	}
	return s.err == nil
}

// literal reads a Python string in single or double quotes, without escape sequences.
func (s *scanner) literal() string {
	if s.token() == 'u' {
		s.byte()
	}
	quote := s.byte()
	if quote != '\'' && quote != '"' {
		s.fail("found %q, expected a string", quote)
	}
	var out []byte
	for s.err == nil {
		b := s.byte()
		switch {
		case b == quote:
			return string(out)
		case b < ' ' || b > '~' || b == '\\' || len(out) == maxName:
			s.fail("a string that is not a name or type")
		}
		out = append(out, b)
	}
	return ""
}

func (s *scanner) descr() Type {
	if b := s.token(); b == '[' || b == '(' {
		s.fail("a structured type, which is not supported as a tensor")
		return Type{}
	}
	text := s.literal()
	if s.err != nil {
		return Type{}
	}
	t, err := numpyType(text)
	if err != nil {
		s.err = err
	}
	return t
}

func (s *scanner) truth() bool {
	word := "False"
	if s.token() == 'T' {
		word = "True"
	}
	for i := range len(word) {
		if b := s.byte(); b != word[i] {
			s.fail("fortran_order is neither True nor False")
		}
	}
	return word == "True"
}

// tuple reads numbers in parentheses. Python 2 has written some of them with a suffix L, which
// NumPy accepts in versions 1 and 2 only.
func (s *scanner) tuple() []uint64 {
	var out []uint64
	before := s.commas
	s.expect('(')
	for first := true; s.moreLiteral(first, ')'); first = false {
		if len(out) == maxDims {
			s.fail("more than %d dimensions", maxDims)
			break
		}
		out = append(out, s.count())
		if b, ok := s.peek(); ok && b == 'L' && s.longs {
			s.byte()
		}
	}
	if len(out) == 1 && s.commas == before {
		s.fail("found a number, expected a tuple")
	}
	return out
}
