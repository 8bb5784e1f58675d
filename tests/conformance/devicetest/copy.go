package devicetest

import (
	"bytes"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

const kib = 1 << 10

func checkSizes(e *env) {
	for i, n := range []int{
		1, 2, 3, 7, 8, 9, 63, 64, 65, 511, 512, 4095, 4096, 4097,
		64*kib - 1, 64 * kib, 64*kib + 1, 1024 * kib, 1024*kib + 1, 5*1024*kib + 13,
	} {
		if n != e.within(n) {
			continue
		}
		want := Bytes(n, uint64(i))
		mem := e.filled(want)
		e.holds(mem, want)
		e.release(mem)
	}
}

func checkUnaligned(e *env) {
	n := e.within(300*kib + 7)
	shadow := Bytes(n, 1)
	mem := e.filled(shadow)
	r := NewRand(2)
	for round := range 200 {
		off := int(r.Below(uint64(n)))
		size := int(r.Below(uint64(min(n-off, 1+n>>r.Below(18))) + 1))
		if round%2 == 0 {
			Pattern(shadow[off:off+size], uint64(round), 0)
			e.ok(e.dev.CopyIn(e.ctx, e.span(mem, off, size), shadow[off:off+size]))
			continue
		}
		got := make([]byte, size)
		e.ok(e.dev.CopyOut(e.ctx, got, e.span(mem, off, size)))
		if err := Compare(got, shadow[off:off+size]); err != nil {
			e.Fatalf("round %d, [%d, %d): %v", round, off, off+size, err)
		}
	}
	e.holds(mem, shadow)
	e.release(mem)
}

// checkCopy copies between two memories.
func checkCopy(e *env) {
	n := e.within(1024*kib + 5)
	from, to := Bytes(n, 1), Bytes(n, 2)
	src, dst := e.filled(from), e.filled(to)
	r := NewRand(3)
	for range 100 {
		size := int(r.Below(uint64(n>>r.Below(20)) + 1))
		a, b := int(r.Below(uint64(n-size+1))), int(r.Below(uint64(n-size+1)))
		e.ok(e.dev.Copy(e.ctx, e.span(dst, a, size), e.span(src, b, size)))
		copy(to[a:a+size], from[b:b+size])
	}
	e.holds(dst, to)
	e.holds(src, from)
	e.ok(e.dev.Copy(e.ctx, dst.All(), src.All()))
	e.holds(dst, from)
	e.release(src, dst)
}

// checkCopyOverlap shifts bytes within one memory by various distances, in both directions, as
// memmove does.
func checkCopyOverlap(e *env) {
	for _, n := range []int{1, 100, 5000, 300 * kib, 9*1024*kib + 3} {
		n = e.within(n)
		shadow := Bytes(n, uint64(n))
		mem := e.filled(shadow)
		for _, shift := range []int{0, 1, 3, 7, 8, 64, 1000, 4096, 4097, n / 3, n / 2, n - 1} {
			if shift < 0 || shift >= n {
				continue
			}
			for _, d := range [][2]int{{shift, 0}, {0, shift}} {
				size := n - shift
				e.ok(e.dev.Copy(e.ctx, e.span(mem, d[0], size), e.span(mem, d[1], size)))
				copy(shadow[d[0]:d[0]+size], shadow[d[1]:d[1]+size])
			}
			if n <= 300*kib {
				e.holds(mem, shadow)
			}
		}
		e.holds(mem, shadow)
		e.release(mem)
	}
}

func checkFill(e *env) {
	n := e.within(1024*kib + 3)
	shadow := Bytes(n, 1)
	mem := e.filled(shadow)
	r := NewRand(4)
	for round := range 60 {
		off := int(r.Below(uint64(n)))
		size := int(r.Below(uint64((n-off)>>r.Below(18)) + 1))
		value := byte(round * 37)
		e.ok(e.dev.Fill(e.ctx, e.span(mem, off, size), value))
		copy(shadow[off:], bytes.Repeat([]byte{value}, size))
	}
	e.holds(mem, shadow)
	e.ok(e.dev.Fill(e.ctx, mem.All(), 0))
	e.holds(mem, make([]byte, n))
	e.release(mem)
}

func checkZeroLength(e *env) {
	want := Bytes(100, 1)
	mem := e.filled(want)
	for _, off := range []int{0, 1, 100} {
		s := e.span(mem, off, 0)
		e.ok(e.dev.CopyIn(e.ctx, s, nil))
		e.ok(e.dev.CopyIn(e.ctx, s, []byte{}))
		e.ok(e.dev.CopyOut(e.ctx, nil, s))
		e.ok(e.dev.Copy(e.ctx, s, e.span(mem, 50, 0)))
		e.ok(e.dev.Fill(e.ctx, s, 1))
	}
	e.holds(mem, want)
	e.release(mem)
}

// each calls fn with the result of every operation of the device on the span, by name.
func (e *env) each(s devices.Span, n int, fn func(what string, err error)) {
	e.Helper()
	buf := make([]byte, n)
	fn("CopyIn", e.dev.CopyIn(e.ctx, s, buf))
	fn("CopyOut", e.dev.CopyOut(e.ctx, buf, s))
	fn("Copy to itself", e.dev.Copy(e.ctx, s, s))
	fn("Fill", e.dev.Fill(e.ctx, s, 0))
	if _, ok := e.dev.(devices.HostMapper); ok && s.Mem != nil {
		v, err := devices.MapHost(e.ctx, s, devices.ReadOnly)
		if err == nil {
			v.Release()
		}
		fn("MapHost", err)
	}
}

func checkRange(e *env) {
	const size = 1000
	want := Bytes(size, 1)
	mem := e.filled(want)
	for _, r := range []devices.Range{
		{Off: 0, Len: size + 1},
		{Off: 1, Len: size},
		{Off: size, Len: 1},
		{Off: size + 1, Len: 0},
		{Off: 1 << 40, Len: 8},
		{Off: ^devices.Offset(0), Len: 2},
		{Off: ^devices.Offset(0) - 7, Len: 8},
		{Off: 1<<63 - 4, Len: 8},
	} {
		if _, err := mem.Span(r); err == nil {
			e.Errorf("a span of %v", r)
		}
		n := int(min(r.Len, size+1))
		e.each(devices.Span{Mem: mem, Range: r}, n, func(what string, err error) {
			e.fails(fmt.Sprintf("%s %v", what, r), err, devices.ErrRange)
		})
	}
	e.each(devices.Span{}, 0, func(what string, err error) {
		e.fails(what+" without memory", err, devices.ErrRange)
	})
	e.fails("CopyIn of less", e.dev.CopyIn(e.ctx, mem.All(), make([]byte, size-1)), devices.ErrRange)
	e.fails("CopyIn of more", e.dev.CopyIn(e.ctx, mem.All(), make([]byte, size+1)), devices.ErrRange)
	e.fails("CopyOut of less", e.dev.CopyOut(e.ctx, make([]byte, size-1), mem.All()), devices.ErrRange)
	e.fails("CopyOut of more", e.dev.CopyOut(e.ctx, make([]byte, size+1), mem.All()), devices.ErrRange)
	e.fails("Copy of less", e.dev.Copy(e.ctx, mem.All(), e.span(mem, 0, size-1)), devices.ErrRange)
	e.fails("Copy of more", e.dev.Copy(e.ctx, e.span(mem, 0, size-1), mem.All()), devices.ErrRange)
	bad := devices.Span{Mem: mem, Range: devices.Range{Off: 1, Len: size}}
	e.fails("Copy from outside", e.dev.Copy(e.ctx, mem.All(), bad), devices.ErrRange)
	e.holds(mem, want)
	e.release(mem)
}

func checkWrongDevice(e *env) {
	want := Bytes(1000, 1)
	mine := e.filled(want)
	other := e.another()
	theirs, err := other.Alloc(e.ctx, 1000)
	e.ok(err)
	buf := make([]byte, 1000)
	e.fails("CopyIn", e.dev.CopyIn(e.ctx, theirs.All(), buf), devices.ErrRange)
	e.fails("CopyOut", e.dev.CopyOut(e.ctx, buf, theirs.All()), devices.ErrRange)
	e.fails("Copy from", e.dev.Copy(e.ctx, mine.All(), theirs.All()), devices.ErrRange)
	e.fails("Copy to", e.dev.Copy(e.ctx, theirs.All(), mine.All()), devices.ErrRange)
	e.fails("Fill", e.dev.Fill(e.ctx, theirs.All(), 0), devices.ErrRange)
	e.holds(mine, want)
	e.release(mine, theirs)
}
