package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// npyColumns is the length of a row of the NumPy array.
const npyColumns = 1024

// npyShape is the shape of a float32 array of about size bytes.
func npyShape(size uint64) [2]uint64 {
	return [2]uint64{max(size/(4*npyColumns), 1), npyColumns}
}

// writeNPY writes a float32 array in NumPy's format, version 1.0.
func writeNPY(w io.Writer, shape [2]uint64, seed uint64) error {
	if _, err := w.Write(npyHeader(shape)); err != nil {
		return err
	}
	return writeRandom(w, 4*shape[0]*shape[1], seed, 0, drawFloat32)
}

// npyHeader is magic, version, length and a Python dictionary, padded so that
// the data begins at a multiple of 64.
func npyHeader(shape [2]uint64) []byte {
	const align, preamble = 64, 10
	text := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", shape[0], shape[1])
	total := (preamble + len(text) + 1 + align - 1) / align * align
	head := append([]byte("\x93NUMPY"), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(total-preamble))
	head = append(head, text...)
	head = append(head, strings.Repeat(" ", total-len(head)-1)...)
	return append(head, '\n')
}
