package tensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// lengthBytes is the size of the length before the header.
const lengthBytes = 8

// safetensorsHeader returns the length of the header, after checking that it is within the file.
func safetensorsHeader(r io.ReaderAt, size uint64) (uint64, error) {
	if size < lengthBytes {
		return 0, fmt.Errorf("%w: %d bytes are too few for a safetensors file", ErrFormat, size)
	}
	var prefix [lengthBytes]byte
	if err := readFull(r, prefix[:], 0); err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	return n, checkHeader(n, lengthBytes, size)
}

// checkHeader refuses a header of n bytes at off that is too long, or longer than the file.
func checkHeader(n, off, size uint64) error {
	switch {
	case n > MaxHeader:
		return fmt.Errorf("%w: a header of %d bytes, the maximum is %d", ErrFormat, n, MaxHeader)
	case n > size-off:
		return fmt.Errorf("%w: a header of %d bytes does not fit a file of %d", ErrFormat, n, size)
	}
	return nil
}

func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the file ends within the header", ErrFormat)
	}
	return fmt.Errorf("read a header: %w", err)
}

// parseSafetensors returns the tensors in the order of their bytes, or none if there are more
// than most.
func parseSafetensors(r io.ReaderAt, size uint64, most int) ([]Tensor, error) {
	n, err := safetensorsHeader(r, size)
	if err != nil {
		return nil, err
	}
	s := newScanner(r, lengthBytes, n)
	if b := s.byte(); b != '{' { // not even a space may precede it
		s.fail("found %q, expected '{'", b)
	}
	var all []Tensor
	for first := true; s.more(first, '}'); first = false {
		name := s.text(maxPath)
		s.expect(':')
		if name == "__metadata__" {
			s.metadata()
			continue
		}
		t := s.tensor()
		if s.err == nil {
			if t.Path, err = pathOf(name); err != nil {
				return nil, err
			}
		}
		if s.err != nil {
			return nil, fmt.Errorf("tensor %.60q: %w", name, s.err)
		}
		all = append(all, t)
		if len(all) > most {
			if most < MaxEntries {
				return nil, nil
			}
			return nil, fmt.Errorf("%w: more than %d tensors", ErrFormat, MaxEntries)
		}
	}
	s.end()
	if s.err != nil {
		return nil, s.err
	}
	return all, place(all, lengthBytes+n, size)
}

// metadata reads texts by name, which are not used.
func (s *scanner) metadata() {
	drop := func(rune) {}
	s.expect('{')
	for first := true; s.more(first, '}'); first = false {
		s.quoted(drop)
		s.expect(':')
		s.quoted(drop)
	}
}

// tensor reads one description. Off and the end, in Len, are relative to the end of the header.
func (s *scanner) tensor() Tensor {
	var t Tensor
	var haveType, haveShape, haveOffsets bool
	once := func(have *bool, name string) {
		if *have {
			s.fail("repeated field %s", name)
		}
		*have = true
	}
	s.expect('{')
	for first := true; s.more(first, '}'); first = false {
		field := s.text(maxName)
		s.expect(':')
		switch field {
		case "dtype":
			once(&haveType, field)
			name := s.text(maxName)
			var ok bool
			if t.Type, ok = safetensorsTypes[name]; !ok {
				s.fail("unknown type %.40q", name)
			}
		case "shape":
			once(&haveShape, field)
			t.Shape = s.counts(maxDims)
		case "data_offsets":
			once(&haveOffsets, field)
			if at := s.counts(2); len(at) == 2 {
				t.Off, t.Len = at[0], at[1]
			} else {
				s.fail("data_offsets does not have two numbers")
			}
		default:
			s.ignore(0)
		}
	}
	if !haveType || !haveShape || !haveOffsets {
		s.fail("missing dtype, shape or data_offsets")
	}
	return t
}

func (s *scanner) counts(most int) []uint64 {
	var out []uint64
	s.expect('[')
	for first := true; s.more(first, ']'); first = false {
		if len(out) == most {
			s.fail("more than %d numbers in a list", most)
			break
		}
		out = append(out, s.count())
	}
	return out
}

// maxDepth bounds the nesting of unknown values.
const maxDepth = 32

func (s *scanner) ignore(depth int) {
	if depth > maxDepth {
		s.fail("nested too deeply")
	}
	switch s.token() {
	case '"':
		s.quoted(func(rune) {})
	case '{':
		s.byte()
		for first := true; s.more(first, '}'); first = false {
			s.quoted(func(rune) {})
			s.expect(':')
			s.ignore(depth + 1)
		}
	case '[':
		s.byte()
		for first := true; s.more(first, ']'); first = false {
			s.ignore(depth + 1)
		}
	default:
		s.plain()
	}
}

// plain reads a number, true, false or null.
func (s *scanner) plain() {
	var word []byte
	for {
		b, ok := s.peek()
		if !ok || (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '-' && b != '+' && b != '.' && b != 'E' {
			break
		}
		if word = append(word, s.byte()); len(word) > maxName {
			break
		}
	}
	if len(word) > maxName || !json.Valid(word) {
		s.fail("%.40q is not a valid value", word)
	}
}

// place checks that the tensors fill the rest of the file after the header exactly, without
// overlap, and converts their offsets to offsets in the file.
func place(all []Tensor, header, size uint64) error {
	slices.SortStableFunc(all, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(a.Len, b.Len))
	})
	data, end := size-header, uint64(0)
	for i := range all {
		t := &all[i]
		fault := func(format string, args ...any) error {
			return fmt.Errorf("%w: tensor %.60q: %s", ErrFormat, t.name(), fmt.Sprintf(format, args...))
		}
		from, to := t.Off, t.Len
		switch {
		case to < from:
			return fault("its bytes end at %d, before they begin at %d", to, from)
		case to > data:
			return fault("its bytes end at %d, beyond the %d bytes of data in the file", to, data)
		case from < end:
			return fault("its bytes at %d overlap those of another tensor, which end at %d", from, end)
		case from > end:
			return fault("the bytes from %d to %d before it belong to no tensor", end, from)
		}
		n, err := byteLen(t.Type, t.Shape)
		if err != nil {
			return fmt.Errorf("tensor %.60q: %w", t.name(), err)
		}
		if n != to-from {
			return fault("shape %s of type %s has %d bytes, but its data has %d", t.ShapeText(), t.Type.Name, n, to-from)
		}
		t.Off, t.Len, end = header+from, n, to
	}
	if end != data {
		return fmt.Errorf("%w: the last %d bytes belong to no tensor", ErrFormat, data-end)
	}
	return nil
}

// name returns the tensor's name in the header.
func (t *Tensor) name() string { return t.Path[:len(t.Path)-len(npySuffix)] }
