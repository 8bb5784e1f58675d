package devicetest

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

// combining returns the types whose elements can be combined.
func combining() []elem.Type {
	return []elem.Type{
		elem.Int8, elem.Uint8, elem.Int32, elem.Int64, elem.Float16, elem.BFloat16, elem.Float32, elem.Float64,
	}
}

// meeting returns the special values of a type, as bits: zeros, infinities, NaNs, the least and
// the largest numbers, and the limits of integers.
func meeting(t elem.Type) []uint64 {
	switch t {
	case elem.Float16:
		return []uint64{0, 0x8000, 1, 0x83ff, 0x400, 0x3c00, 0xbc01, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfc01, 0x1400}
	case elem.BFloat16:
		return []uint64{0, 0x8000, 1, 0x807f, 0x80, 0x3f80, 0xbf81, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xff81, 0x2000}
	case elem.Float32:
		return []uint64{
			0, 1 << 31, 1, 0x807fffff, 0x800000, 0x3f800000, 0xbf800001, 0x7f7fffff, 0xff7fffff, 0x7f800000,
			0xff800000, 0x7fc00000, 0xff800001, 0x20000000,
		}
	case elem.Float64:
		return []uint64{
			0, 1 << 63, 1, 0x800<<52 + 7, 1 << 52, 0x3ff << 52, 0xbff<<52 + 1, 0x7ff<<52 - 1, 0xfff<<52 - 1, 0x7ff << 52,
			0xfff << 52, 0x7ff8 << 48, 0xfff<<52 + 1, 0x200 << 52,
		}
	default:
		top := uint64(1) << (8*t.Size() - 1)
		return []uint64{0, 1, 2, 3, top - 1, top, top + 1, 2*top - 1, 2*top - 2, 15, 17, 100, 46341, 3037000500}
	}
}

// elements returns n elements: first pairs of the special values, then random ones. The first
// and the second operand together cover all pairs.
func elements(t elem.Type, n int, second bool) []byte {
	size := int(t.Size())
	p := Bytes(n*size, uint64(t)+100)
	if second {
		p = Bytes(n*size, uint64(t)+200)
	}
	bits := meeting(t)
	for i := range min(n, len(bits)*len(bits)) {
		v := bits[i%len(bits)]
		if second {
			v = bits[i/len(bits)]
		}
		copy(p[i*size:(i+1)*size], binary.LittleEndian.AppendUint64(nil, v))
	}
	return p
}

// checkReduce compares the device with elem.Combine, whether the device or the host combines.
func checkReduce(e *env) {
	for _, t := range combining() {
		for op := elem.Sum; op <= elem.Avg; op++ {
			n := e.within(5000*int(t.Size())) / int(t.Size())
			e.reduceOnce(t, op, n)
		}
		e.reduceParts(t)
	}
}

// reduceOnce combines whole memories, and one with itself.
func (e *env) reduceOnce(t elem.Type, op elem.Op, n int) {
	e.Helper()
	a, b := elements(t, n, false), elements(t, n, true)
	dst, src := e.filled(a), e.filled(b)
	e.ok(devices.Reduce(e.ctx, dst.All(), src.All(), t, op))
	want := make([]byte, len(a))
	e.ok(elem.Combine(op, t, want, a, b))
	e.holdsElements(dst, want, t, op)
	e.holds(src, b)
	e.ok(devices.Reduce(e.ctx, src.All(), src.All(), t, op))
	e.ok(elem.Combine(op, t, want, b, b))
	e.holdsElements(src, want, t, op)
	e.ok(devices.Divide(e.ctx, src.All(), t, 3))
	e.ok(elem.Divide(t, want, 3))
	e.holdsElements(src, want, t, op)
	e.release(dst, src)
}

func (e *env) holdsElements(mem *devices.Memory, want []byte, t elem.Type, op elem.Op) {
	e.Helper()
	got := make([]byte, mem.Size())
	e.ok(e.dev.CopyOut(e.ctx, got, mem.All()))
	if err := Compare(got, want); err != nil {
		e.Fatalf("%v of %v: %v", op, t, err)
	}
}

// reduceParts combines parts of memories, also two parts of the same one, and parts with
// unaligned elements.
func (e *env) reduceParts(t elem.Type) {
	e.Helper()
	size := int(t.Size())
	n := e.within(3000*size) / size * size
	shadow, other := Bytes(n, 1), Bytes(n, 2)
	dst, src := e.filled(shadow), e.filled(other)
	r := NewRand(uint64(t))
	for round := range 40 {
		length := int(r.Below(uint64(n/2/size)+1)) * size
		a, b := int(r.Below(uint64(n-length+1))), int(r.Below(uint64(n-length+1)))
		if round%4 != 0 {
			a, b = a/size*size, b/size*size
		}
		from, mem := other, src
		if round%3 == 0 {
			// The two halves of one memory.
			from, mem = shadow, dst
			a, b, length = 0, n/2/size*size, min(length, n/2/size*size)
		}
		e.ok(devices.Reduce(e.ctx, e.span(dst, a, length), e.span(mem, b, length), t, elem.Sum))
		// Aligned copies, as combining on the host requires.
		x, y := bytes.Clone(shadow[a:a+length]), bytes.Clone(from[b:b+length])
		e.ok(elem.Combine(elem.Sum, t, x, x, y))
		copy(shadow[a:], x)
	}
	e.holdsElements(dst, shadow, t, elem.Sum)
	e.holds(src, other)
	e.release(dst, src)
}

func checkReduceRefused(e *env) {
	want := Bytes(1000, 1)
	mem, other := e.filled(want), e.filled(want)
	reduce := func(dst, src devices.Span, t elem.Type, op elem.Op) error {
		err := devices.Reduce(e.ctx, dst, src, t, op)
		if r, ok := e.dev.(devices.Reducer); ok {
			direct := r.Reduce(e.ctx, dst, src, t, op)
			if direct == nil {
				e.Errorf("%v of %v: %v by the helper, done by the device", op, t, err)
			}
		}
		return err
	}
	e.fails("type", reduce(mem.All(), other.All(), elem.Bool, elem.Sum), elem.ErrType)
	e.fails("operation", reduce(mem.All(), other.All(), elem.Int8, 77), elem.ErrType)
	e.fails("half an element", reduce(e.span(mem, 0, 6), e.span(other, 0, 6), elem.Int32, elem.Sum), elem.ErrType)
	e.fails("lengths", reduce(e.span(mem, 0, 8), e.span(other, 0, 4), elem.Int32, elem.Sum), devices.ErrRange)
	e.fails("overlap", reduce(e.span(mem, 0, 8), e.span(mem, 4, 8), elem.Int32, elem.Sum), devices.ErrRange)
	outside := devices.Span{Mem: mem, Range: devices.Range{Off: 996, Len: 8}}
	e.fails("outside", reduce(outside, e.span(other, 0, 8), elem.Int32, elem.Sum), devices.ErrRange)
	foreign := e.another()
	theirs, err := foreign.Alloc(e.ctx, 1000)
	e.ok(err)
	e.fails("two devices", reduce(mem.All(), theirs.All(), elem.Int8, elem.Sum), devices.ErrRange)
	e.fails("divide by 0", devices.Divide(e.ctx, mem.All(), elem.Int8, 0), elem.ErrType)
	e.fails("divide type", devices.Divide(e.ctx, mem.All(), elem.Bool, 2), elem.ErrType)
	e.fails("divide outside", devices.Divide(e.ctx, outside, elem.Int8, 2), devices.ErrRange)
	e.fails("no memory", devices.Reduce(e.ctx, devices.Span{}, mem.All(), elem.Int8, elem.Sum), devices.ErrRange)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	e.fails("cancelled", devices.Reduce(ctx, mem.All(), other.All(), elem.Int8, elem.Sum), context.Canceled)
	e.holds(other, want)
	e.ok(devices.Reduce(e.ctx, e.span(mem, 8, 0), e.span(other, 16, 0), elem.Int64, elem.Sum))
	e.holds(mem, want)
	e.release(mem, other, theirs)
	e.fails("released", devices.Reduce(e.ctx, mem.All(), mem.All(), elem.Int8, elem.Sum), devices.ErrClosed)
}
