package objects_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestRandomOperations runs random operations on two objects of two devices
// and on byte slices, and compares all bytes, sizes and holes.
func TestRandomOperations(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		t.Run(fmt.Sprintf("mapped=%v", mapped), func(t *testing.T) {
			kit.Check(t)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			m := &model{
				rng: rand.New(rand.NewPCG(seed, 1)), max: 3 << 20, longest: 300 << 10, devs: []string{"sim0", "sim1"},
				rig: newRig(t, small(mapped), sim.Params{Size: 32 << 20, Mapped: true}),
			}
			m.run(1500)
		})
	}
}

type model struct {
	rig   *rig
	rng   *rand.Rand
	files []*objects.File
	want  [][]byte
	made  uint64
	log   []string
	// max is the beginning of the last range, longest the length of the longest.
	max, longest int
	// copies are that many steps of 10 on top, which are all copies.
	copies int
	// kill, if it is set, ends the store without Close and opens the next.
	kill func()
	devs []string
}

// run does random steps on three files of two devices, fewer in short tests.
func (m *model) run(steps int) {
	m.dirty()
	for i, dev := range []string{m.devs[0], m.devs[1], m.devs[0]} {
		m.files = append(m.files, m.rig.create(dev, fmt.Sprint("f", i)))
		m.want = append(m.want, nil)
	}
	if testing.Short() || kit.Race() {
		steps /= 5
	}
	for range steps {
		m.step()
	}
	m.finish()
}

// dirty fills the devices with bytes and frees them, so that fresh memory
// has something to leak.
func (m *model) dirty() {
	for _, dev := range m.devs {
		f := m.rig.create(dev, "dirt")
		m.rig.write(f, 0, bytes.Repeat([]byte{0xDB}, 24<<20))
		m.rig.close(f)
		if err := m.rig.store.Unlink(m.rig.ctx(), m.rig.root(dev), "dirt"); err != nil {
			m.rig.t.Fatal(err)
		}
	}
}

func (m *model) bytes(n int) []byte {
	m.made++
	return kit.Bytes(m.made, 0, n)
}

// span draws a range; many begin or end at a page.
func (m *model) span() (off, n int) {
	off, n = m.rng.IntN(m.max), 1+m.rng.IntN(m.longest)
	if m.rng.IntN(2) == 0 {
		n = 1 + m.rng.IntN(9000)
	}
	if m.rng.IntN(3) == 0 {
		off &^= 4095
	}
	if m.rng.IntN(3) == 0 {
		n = (n + 4095) &^ 4095
	}
	return off, n
}

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func grow(b []byte, n int) []byte {
	for len(b) < n {
		b = append(b, make([]byte, n-len(b))...)
	}
	return b
}

func (m *model) step() {
	i := m.rng.IntN(len(m.files))
	off, n := m.span()
	if m.kill != nil && m.rng.IntN(20) == 0 {
		m.note("kill")
		m.kill()
	}
	switch m.rng.IntN(10 + m.copies) {
	case 0, 1, 2:
		m.note("write %d: %d+%d", i, off, n)
		p := m.bytes(n)
		m.rig.write(m.files[i], uint64(off), p)
		m.want[i] = grow(m.want[i], off+n)
		copy(m.want[i][off:], p)
	case 3:
		m.note("append %d: %d", i, n)
		p := m.bytes(n)
		if len(m.want[i]) > m.max {
			return
		}
		if _, err := m.files[i].WriteAt(m.rig.ctx(), p, objects.Write{Append: true}); err != nil {
			m.fail("append: %v", err)
		}
		m.want[i] = append(m.want[i], p...)
	case 4:
		m.truncate(i, off)
	case 5, 6:
		m.allocate(i, off, n)
	case 7:
		m.copy(i, m.rng.IntN(len(m.files)), off, n)
	case 8:
		m.note("reopen %d", i)
		ino := m.files[i].Ino()
		m.rig.close(m.files[i])
		m.files[i] = m.rig.open(ino)
	case 9:
		m.check(i)
	default:
		m.copy(i, m.rng.IntN(len(m.files)), off, n)
	}
}

func (m *model) truncate(i, size int) {
	m.note("truncate %d: %d", i, size)
	to := uint64(size)
	if _, err := m.rig.store.SetAttr(m.rig.ctx(), m.files[i].Ino(), objects.Change{Size: &to}); err != nil {
		m.fail("truncate: %v", err)
	}
	m.want[i] = grow(m.want[i], size)[:size:size]
}

func (m *model) allocate(i, off, n int) {
	mode := objects.AllocateMode(m.rng.IntN(5))
	m.note("allocate %d mode %d: %d+%d", i, mode, off, n)
	if err := m.files[i].Allocate(m.rig.ctx(), mode, uint64(off), uint64(n)); err != nil {
		m.fail("allocate: %v", err)
	}
	if mode == objects.AllocateExtend || mode == objects.AllocateZero {
		m.want[i] = grow(m.want[i], off+n)
	}
	if mode >= objects.AllocatePunch && off < len(m.want[i]) {
		clear(m.want[i][off:min(off+n, len(m.want[i]))])
	}
}

func (m *model) copy(from, to, off, n int) {
	at := m.rng.IntN(m.max)
	m.note("copy %d:%d to %d:%d, %d bytes", from, off, to, at, n)
	if from == to && off < at+n && at < off+n {
		return
	}
	want := max(0, min(n, len(m.want[from])-off))
	got, err := m.rig.store.CopyRange(m.rig.ctx(), objects.CopyRange{
		Dst: m.files[to], DstOff: uint64(at), Src: m.files[from], SrcOff: uint64(off), N: uint64(n),
	})
	if err != nil || got != uint64(want) {
		m.fail("copy: %d of %d, %v", got, want, err)
	}
	if want == 0 {
		return
	}
	m.want[to] = grow(m.want[to], at+want)
	copy(m.want[to][at:at+want], m.want[from][off:off+want])
}

func (m *model) check(i int) {
	got := m.rig.read(m.files[i], 0, len(m.want[i])+100)
	if d := kit.FirstDiff(got, m.want[i]); d >= 0 {
		m.fail("object %d: byte %d differs (lengths %d, %d)", i, d, len(got), len(m.want[i]))
	}
	if v, err := m.files[i].Views(m.rig.ctx(), 0, len(m.want[i])); err == nil {
		if seen := bytes.Join(v.Slices, nil); !bytes.Equal(seen, m.want[i]) {
			m.fail("object %d: views differ at byte %d", i, kit.FirstDiff(seen, m.want[i]))
		}
		v.Release()
	}
	if a := m.rig.attr(m.files[i].Ino()); a.Size != uint64(len(m.want[i])) {
		m.fail("object %d: size %d, want %d", i, a.Size, len(m.want[i]))
	}
	m.checkHoles(i)
}

// checkHoles walks data and holes: what is called a hole must be zeros.
func (m *model) checkHoles(i int) {
	end := uint64(len(m.want[i]))
	for off := uint64(0); off < end; {
		hole, err := m.files[i].Seek(m.rig.ctx(), off, objects.SeekHole)
		if err != nil {
			m.fail("seek hole: %v", err)
		}
		data, err := m.files[i].Seek(m.rig.ctx(), hole, objects.SeekData)
		if err != nil {
			data = end
		}
		if len(bytes.Trim(m.want[i][hole:data], "\x00")) > 0 {
			m.fail("object %d: data in the hole [%d, %d)", i, hole, data)
		}
		off = data
	}
}

func (m *model) finish() {
	for i, f := range m.files {
		m.check(i)
		m.rig.close(f)
	}
	for _, dev := range m.devs {
		root := m.rig.root(dev)
		entries, err := m.rig.store.ReadDir(m.rig.ctx(), root, 0, 100)
		if err != nil {
			m.fail("list: %v", err)
		}
		for _, e := range entries {
			if err := m.rig.store.Unlink(m.rig.ctx(), root, e.Name); err != nil {
				m.fail("remove: %v", err)
			}
		}
		if used := m.rig.used(m.rig.devs[0].Info().Name); used != 0 && dev == m.devs[1] {
			m.fail("%v in use after everything was removed", used)
		}
	}
	if err := m.rig.meta.Check(m.rig.ctx(), func(p metadata.Problem) { m.rig.t.Errorf("record: %+v", p) }); err != nil {
		m.fail("check: %v", err)
	}
}

func (m *model) fail(format string, args ...any) {
	m.rig.t.Helper()
	last := m.log[max(0, len(m.log)-12):]
	for _, line := range last {
		m.rig.t.Log(line)
	}
	m.rig.t.Fatalf(format, args...)
}
