package tensors

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads a header as a stream. It keeps its first error, after which all reads return
// nothing, so that callers need to check only once.
type scanner struct {
	r   *bufio.Reader
	at  uint64 // bytes read
	err error
	// commas counts the commas between the items of lists.
	commas int
	// longs allows numbers to have a suffix L.
	longs bool
}

// scanBuffer is the number of bytes of a header that are in memory at a time.
const scanBuffer = 64 << 10

// newScanner returns a scanner of n bytes at off.
func newScanner(r io.ReaderAt, off, n uint64) *scanner {
	section := io.NewSectionReader(r, int64(off), int64(n))
	return &scanner{r: bufio.NewReaderSize(section, int(min(n+1, scanBuffer)))}
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: header, byte %d: %s", ErrFormat, s.at, fmt.Sprintf(format, args...))
	}
}

// peek returns the next byte without reading it; ok is false at the end.
func (s *scanner) peek() (b byte, ok bool) {
	if s.err != nil {
		return 0, false
	}
	p, err := s.r.Peek(1)
	switch {
	case len(p) == 1:
		return p[0], true
	case !errors.Is(err, io.EOF):
		s.err = fmt.Errorf("read a header: %w", err)
	}
	return 0, false
}

func (s *scanner) byte() byte {
	b, ok := s.peek()
	if !ok {
		s.fail("unexpected end")
		return 0
	}
	s.at++
	_, _ = s.r.Discard(1) // peek has read it
	return b
}

// token returns the first byte that is no space without reading it.
func (s *scanner) token() byte {
	for {
		switch b, ok := s.peek(); {
		case !ok:
			s.fail("unexpected end")
			return 0
		case isSpace(b):
			s.byte()
		default:
			return b
		}
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

// end requires the rest to be spaces.
func (s *scanner) end() {
	for {
		b, ok := s.peek()
		if !ok {
			return
		}
		if !isSpace(b) {
			s.fail("%q after the closing brace", b)
		}
		s.byte()
	}
}

// expect reads one token.
func (s *scanner) expect(want byte) {
	if got := s.token(); got != want {
		s.fail("found %q, expected %q", got, want)
	}
	s.byte()
}

// more is called before each item of a comma-separated list: it reports whether there is another
// item before the end.
func (s *scanner) more(first bool, end byte) bool {
	b := s.token()
	switch {
	case b == end:
		s.byte()
		return false
	case !first && b != ',':
		s.fail("found %q, expected ',' or %q", b, end)
	case !first:
		s.byte()
		s.commas++
	}
	return s.err == nil
}

// count reads a non-negative number that fits 63 bits.
func (s *scanner) count() uint64 {
	if s.token() == '-' {
		s.fail("a negative number")
	}
	n, digits := uint64(0), 0
	for ; ; digits++ {
		b, ok := s.peek()
		switch {
		case ok && (b == '.' || b == 'e' || b == 'E'):
			s.fail("a number that is not an integer")
		case !ok || b < '0' || b > '9':
			if digits == 0 {
				s.fail("found %q, expected a number", b)
			}
			return n
		case digits > 0 && n == 0:
			s.fail("a number with a leading zero")
		case n > (maxCount-uint64(b-'0'))/10:
			s.fail("a number beyond 2^63")
		}
		if s.err != nil {
			return 0
		}
		n = 10*n + uint64(s.byte()-'0')
	}
}

// text reads a JSON string of at most limit bytes, including its quotes.
func (s *scanner) text(limit int) string {
	var out []byte
	s.quoted(func(r rune) {
		if len(out) > limit {
			s.fail("a string longer than %d bytes", limit)
			return
		}
		out = utf8.AppendRune(out, r)
	})
	if s.err != nil {
		return ""
	}
	return string(out)
}

// quoted reads a JSON string and passes its characters to put.
func (s *scanner) quoted(put func(rune)) {
	s.expect('"')
	for s.err == nil {
		switch b := s.byte(); {
		case s.err != nil:
		case b == '"':
			return
		case b == '\\':
			put(s.escape())
		case b < ' ':
			s.fail("a control character in a string")
		case b < utf8.RuneSelf:
			put(rune(b))
		default:
			put(s.letter(b))
		}
	}
}

// letter reads the rest of a multi-byte character.
func (s *scanner) letter(first byte) rune {
	p := [utf8.UTFMax]byte{first}
	n := 1
	for ; n < len(p) && !utf8.FullRune(p[:n]); n++ {
		p[n] = s.byte()
	}
	r, size := utf8.DecodeRune(p[:n])
	if size != n || r == utf8.RuneError && n == 1 {
		s.fail("a string that is not valid UTF-8")
	}
	return r
}

// escape reads the rest of an escape sequence after the backslash.
func (s *scanner) escape() rune {
	switch b := s.byte(); b {
	case '"', '\\', '/':
		return rune(b)
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'u':
		r := s.hex()
		if !utf16.IsSurrogate(r) {
			return r
		}
		if s.byte() == '\\' && s.byte() == 'u' {
			if r = utf16.DecodeRune(r, s.hex()); r != utf8.RuneError {
				return r
			}
		}
		s.fail("half a surrogate pair")
	default:
		s.fail("unknown escape sequence \\%c", b)
	}
	return utf8.RuneError
}

func (s *scanner) hex() rune {
	var digits [4]byte
	for i := range digits {
		digits[i] = s.byte()
	}
	n, err := strconv.ParseUint(string(digits[:]), 16, 16)
	if err != nil {
		s.fail("%q is not four hexadecimal digits", digits[:])
	}
	return rune(n)
}
