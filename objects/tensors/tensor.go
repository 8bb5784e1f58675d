package tensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// ErrFormat reports that a file's content does not match its name, or exceeds a limit. The error
// that wraps it names the tensor and the cause.
var ErrFormat = errors.New("tensors: malformed file")

const (
	// MaxHeader is the maximum length of a header, in bytes, which is that of the safetensors
	// format.
	MaxHeader = 100_000_000
	// MaxEntries bounds the tensors and directories of a file.
	MaxEntries = 500_000
	// maxDims is the number of dimensions that NumPy 2 supports; earlier versions support 32.
	maxDims = 64
	// maxCount is the largest number that is accepted: what lseek can reach.
	maxCount = 1<<63 - 1
)

// Tensor is one tensor of a file.
type Tensor struct {
	// Path is its place in the tree, such as "h/0/bias.npy".
	Path string
	Type Type
	// Shape is the lengths of the dimensions, the slowest-varying first.
	Shape []uint64
	// Fortran is true if the first dimension varies fastest in memory.
	Fortran bool
	// Off and Len are the tensor's range of the file, in bytes.
	Off, Len uint64
}

// Equal reports whether two tensors are the same range with the same interpretation.
func (t *Tensor) Equal(u *Tensor) bool {
	return t.Path == u.Path && t.Type == u.Type && t.Fortran == u.Fortran &&
		t.Off == u.Off && t.Len == u.Len && slices.Equal(t.Shape, u.Shape)
}

// ShapeText returns the shape in the form of user.hmc.shape; a scalar's is empty.
func (t *Tensor) ShapeText() string { return NumbersText(t.Shape) }

// NumbersText returns numbers separated by commas.
func NumbersText(numbers []uint64) string {
	var b strings.Builder
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(n, 10))
	}
	return b.String()
}

// Header returns the .npy header to precede the tensor's bytes.
func (t *Tensor) Header() []byte {
	return npyHeader(t.Type.Descr, t.Fortran, t.packedShape())
}

// packedShape returns the shape in whole bytes for elements smaller than a byte.
func (t *Tensor) packedShape() []uint64 {
	if t.Type.Bits%8 == 0 || len(t.Shape) == 0 {
		return t.Shape
	}
	shape := slices.Clone(t.Shape)
	last := &shape[len(shape)-1]
	high, low := bits.Mul64(*last, t.Type.Bits)
	if high != 0 || low%8 != 0 {
		return []uint64{t.Len}
	}
	*last = low / 8
	return shape
}

// headerAlign is the alignment of the data of a .npy file.
const headerAlign = 64

const npyMagic = "\x93NUMPY"

// npyHeader returns a header of version 1, or 2 if it is too long for version 1.
func npyHeader(descr string, fortran bool, shape []uint64) []byte {
	var d bytes.Buffer
	order := "False"
	if fortran {
		order = "True"
	}
	fmt.Fprintf(&d, "{'descr': '%s', 'fortran_order': %s, 'shape': (", descr, order)
	for i, n := range shape {
		if i > 0 {
			d.WriteByte(' ')
		}
		d.WriteString(strconv.FormatUint(n, 10))
		if i < len(shape)-1 || len(shape) == 1 {
			d.WriteByte(',')
		}
	}
	d.WriteString("), }")
	prefix := len(npyMagic) + 4 // two bytes of version, two of length
	length := aligned(prefix+d.Len()+1) - prefix
	if length <= 1<<16-1 {
		out := append([]byte(npyMagic), 1, 0)
		out = binary.LittleEndian.AppendUint16(out, uint16(length))
		return padded(out, d.Bytes(), length)
	}
	prefix += 2
	length = aligned(prefix+d.Len()+1) - prefix
	out := append([]byte(npyMagic), 2, 0)
	out = binary.LittleEndian.AppendUint32(out, uint32(length))
	return padded(out, d.Bytes(), length)
}

func aligned(n int) int { return (n + headerAlign - 1) / headerAlign * headerAlign }

// padded appends text, padded with spaces to a line of n bytes.
func padded(out, text []byte, n int) []byte {
	out = append(out, text...)
	out = append(out, bytes.Repeat([]byte{' '}, n-len(text)-1)...)
	return append(out, '\n')
}

// byteLen returns the number of bytes of a shape of a type.
func byteLen(t Type, shape []uint64) (uint64, error) {
	n := t.Bits
	// A dimension of 0 makes the product 0, however large the others are.
	if slices.Contains(shape, 0) {
		n = 0
	}
	for _, d := range shape {
		high, low := bits.Mul64(n, d)
		if high != 0 {
			return 0, fmt.Errorf("%w: its shape has more than 2^63 bytes", ErrFormat)
		}
		n = low
	}
	if n%8 != 0 {
		return 0, fmt.Errorf("%w: its %d bits are not a whole number of bytes", ErrFormat, n)
	}
	return n / 8, nil
}
