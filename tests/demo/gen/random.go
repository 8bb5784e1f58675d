package main

import (
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
)

// drawer writes random elements of one type into a buffer, filling it.
type drawer func(r *rand.PCG, p []byte)

// writeRandom writes n bytes, a multiple of 8, that draw fills in. Each
// stream of a seed is a sequence of its own.
func writeRandom(w io.Writer, n, seed, stream uint64, draw drawer) error {
	r := rand.NewPCG(seed, stream)
	buf := make([]byte, min(n, 64<<10))
	for n > 0 {
		p := buf[:min(n, uint64(len(buf)))]
		draw(r, p)
		if _, err := w.Write(p); err != nil {
			return err
		}
		n -= uint64(len(p))
	}
	return nil
}

// drawFloat32 draws from [-1, 1).
func drawFloat32(r *rand.PCG, p []byte) {
	for ; len(p) >= 8; p = p[8:] {
		x := r.Uint64()
		binary.LittleEndian.PutUint32(p, float32bits(uint32(x)))
		binary.LittleEndian.PutUint32(p[4:], float32bits(uint32(x>>32)))
	}
}

// drawBFloat16 draws from [-1, 1): the upper half of a float32.
func drawBFloat16(r *rand.PCG, p []byte) {
	for ; len(p) >= 8; p = p[8:] {
		x := r.Uint64()
		for i := range 4 {
			bits := float32bits(uint32(x>>(16*i)) << 16)
			binary.LittleEndian.PutUint16(p[2*i:], uint16(bits>>16))
		}
	}
}

// drawFloat16 draws from ±[0.5, 1): sign and ten bits of fraction are random,
// the exponent is fixed.
func drawFloat16(r *rand.PCG, p []byte) {
	const random, exponent = 0x83ff83ff83ff83ff, 0x3800380038003800
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, r.Uint64()&random|exponent)
	}
}

// drawInt64 draws token numbers of a vocabulary.
func drawInt64(r *rand.PCG, p []byte) {
	const vocabulary = 32000
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, r.Uint64()%vocabulary)
	}
}

// drawBytes draws any bytes.
func drawBytes(r *rand.PCG, p []byte) {
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, r.Uint64())
	}
}

// float32bits maps 32 random bits to a number of [-1, 1).
func float32bits(x uint32) uint32 {
	return math.Float32bits(float32(int32(x)>>8) / (1 << 23))
}
