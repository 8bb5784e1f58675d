package randomops

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// maxFile bounds the sum of offset and length, and so the size of files, in bytes.
const maxFile = 4 << 20

// generator generates a program. It predicts the effects of operations only as far as
// needed for most of them to affect something; it does not know which ones fail.
type generator struct {
	*rand.Rand
	program Program
	// handles predicts the state of the slots of handles, and mapped that of the slots of
	// maps.
	handles, mapped [slots]guess
	// sizes holds the predicted sizes of files by path.
	sizes map[string]int64
}

// guess is the predicted state of a slot.
type guess struct {
	used bool
	path string
}

// Generate returns a random program of n operations, determined by the seed.
func Generate(seed uint64, n int) Program {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), sizes: map[string]int64{}}
	choices, total := weights(), 0
	for _, c := range choices {
		total += c.weight
	}
	g.begin()
	for len(g.program) < n {
		at := g.IntN(total)
		for _, c := range choices {
			if at -= c.weight; at < 0 {
				c.make(g)
				break
			}
		}
	}
	return g.program
}

// begin opens the first files.
func (g *generator) begin() {
	for range 4 {
		g.openFile()
	}
}

type choice struct {
	weight int
	make   func(*generator)
}

// weights returns the relative frequencies of the operations.
func weights() []choice {
	return []choice{
		{40, (*generator).openFile},
		{15, func(g *generator) { g.closeSlot(g.handle()) }},
		{120, func(g *generator) { off, n := g.span(); g.sized(off+n, "write", off, n, g.content()) }},
		{40, func(g *generator) { g.add("put", g.handle(), g.length(), g.content()) }},
		{70, func(g *generator) { h := g.handle(); off, n := g.spanOf(h); g.add("read", h, off, n) }},
		{30, func(g *generator) { g.add("get", g.handle(), g.length()) }},
		{15, func(g *generator) { h := g.handle(); off, _ := g.spanOf(h); g.add("seek", h, off) }},
		{30, func(g *generator) { size := g.offset(); g.sized(size, "truncate", size) }},
		{10, func(g *generator) { g.add("cut", g.file(), g.offset()) }},
		{15, func(g *generator) { off, n := g.span(); g.sized(off+n, g.pick("alloc", "zero"), off, n) }},
		{50, (*generator).clearRange},
		{60, (*generator).copyRange},
		{30, (*generator).mapFile},
		{70, (*generator).useMap},
		{15, func(g *generator) { g.add("fsync", g.handle()) }},
		{20, func(g *generator) { g.add("holes", g.handle()) }},
		{15, func(g *generator) { g.add("fstat", g.handle()) }},
		{10, func(g *generator) { g.add("stat", g.name()) }},
		{10, func(g *generator) { g.add("chmod", g.name(), g.mode()) }},
		{5, func(g *generator) { g.add("fchmod", g.handle(), g.mode()) }},
		{10, func(g *generator) { g.add("utimens", g.name(), g.moment(), g.moment()) }},
		{15, (*generator).attribute},
		{12, func(g *generator) { g.add("mkdir", g.dir(), g.mode()) }},
		{4, func(g *generator) { g.add("rmdir", g.dir()) }},
		{5, func(g *generator) { g.add("symlink", g.anyFile(), "target") }},
		{15, (*generator).link},
		{12, (*generator).unlink},
		{30, (*generator).rename},
		{25, (*generator).move},
		{6, func(g *generator) { g.add("tree") }},
		{4, (*generator).crash},
	}
}

func (g *generator) add(verb string, args ...any) { g.program = append(g.program, op(verb, args...)) }

// sized adds a verb that takes a handle first and may extend the file to end.
func (g *generator) sized(end int64, verb string, args ...any) {
	h := g.handle()
	g.add(verb, append([]any{h}, args...)...)
	if g.handles[h].used {
		g.sizes[g.handles[h].path] = end
	}
}

// openFile opens a file in a random slot, mostly for reading and writing.
func (g *generator) openFile() {
	h := g.IntN(slots)
	if g.handles[h].used {
		g.closeSlot(h)
	}
	word := g.pick("rw,creat", "rw,creat", "rw,creat", "rw,creat", "rw,creat", "rw,creat,append", "rw,creat,trunc",
		"rw,creat,direct", "rw,creat,excl", "r", "w,creat", "w,creat,append", "r,direct")
	path := g.anyFile()
	if strings.HasPrefix(word, "r,") || word == "r" {
		path = g.file()
	}
	if strings.Contains(path, "/d") {
		g.add("mkdir", path[:strings.LastIndex(path, "/")], "755")
	}
	g.add("open", h, path, word, "644")
	g.handles[h] = guess{used: true, path: path}
	if strings.Contains(word, "creat") && !strings.Contains(word, "trunc") {
		g.sizes[path] = max(g.sizes[path], 0)
	}
}

func (g *generator) closeSlot(h int) {
	g.add("close", h)
	g.handles[h] = guess{}
}

// clearRange adds a verb that takes a range and keeps the size.
func (g *generator) clearRange() {
	h := g.handle()
	off, n := g.spanOf(h)
	g.add(g.pick("reserve", "punch", "punch", "punch", "zerokeep"), h, off, n)
}

func (g *generator) copyRange() {
	from := g.handle()
	off, n := g.spanOf(from)
	h, to := g.handle(), min(g.offset(), maxFile-n)
	g.add("copy", from, off, h, to, n)
	if path := g.handles[h].path; g.handles[h].used {
		g.sizes[path] = max(g.sizes[path], to+n)
	}
}

func (g *generator) mapFile() {
	m, h := g.IntN(slots), g.handle()
	if g.mapped[m].used {
		g.add("unmap", m)
	}
	g.add("map", m, h, 1+g.offset())
	g.mapped[m] = guess{used: true, path: g.handles[h].path}
}

func (g *generator) useMap() {
	m := pickUsed(g, &g.mapped)
	off, n := g.spanIn(g.sizes[g.mapped[m].path])
	switch g.IntN(10) {
	case 0:
		g.add("msync", m)
	case 1, 2, 3:
		g.add("load", m, off, n)
	default:
		g.add("store", m, off, n, g.content())
	}
}

func (g *generator) attribute() {
	name := fmt.Sprintf("user.x%d", g.IntN(3))
	if g.IntN(4) == 0 {
		g.add("delxattr", g.regular(), name)
		return
	}
	g.add("setxattr", g.regular(), name, g.content())
}

// link adds a second name on the same device.
func (g *generator) link() {
	from, to := g.file(), g.anyFile()
	to = from[:1] + to[1:]
	g.add("link", from, to)
	g.sizes[to] = g.sizes[from]
}

func (g *generator) unlink() {
	path := g.file()
	g.add("unlink", path)
	delete(g.sizes, path)
}

// rename renames within a device.
func (g *generator) rename() {
	from, to := g.file(), g.anyFile()
	if g.IntN(6) == 0 {
		from, to = g.name(), g.name()
	}
	to = from[:1] + to[1:]
	how := g.pick("replace", "replace", "noreplace", "exchange")
	g.add("rename", from, to, how)
	g.renamed(from, to, how == "exchange")
}

// move closes all handles and maps of the file first, because doMove requires a file that
// is not open.
func (g *generator) move() {
	from, to := g.file(), g.anyFile()
	for h := range slots {
		if g.handles[h].used && g.handles[h].path == from {
			g.closeSlot(h)
		}
		if g.mapped[h].used && g.mapped[h].path == from {
			g.add("unmap", h)
			g.mapped[h] = guess{}
		}
	}
	g.add("move", from, to)
	g.renamed(from, to, false)
}

// renamed records that a file has another name.
func (g *generator) renamed(from, to string, exchange bool) {
	other := g.sizes[to]
	g.sizes[to] = g.sizes[from]
	delete(g.sizes, from)
	if exchange {
		g.sizes[from] = other
	}
}

func (g *generator) crash() {
	g.add("crash")
	g.handles, g.mapped = [slots]guess{}, [slots]guess{}
	g.begin()
}

func (g *generator) pick(words ...string) string { return words[g.IntN(len(words))] }

// handle returns an open slot, if there is one.
func (g *generator) handle() int { return pickUsed(g, &g.handles) }

// pickUsed returns a random used slot, if there is one.
func pickUsed(g *generator, of *[slots]guess) int {
	at := g.IntN(slots)
	for i := range slots {
		if s := (at + i) % slots; of[s].used {
			return s
		}
	}
	return at
}

func (g *generator) dir() string  { return fmt.Sprintf("%s/d%d", g.pick("A", "B"), g.IntN(2)) }
func (g *generator) mode() string { return g.pick("600", "644", "755", "4711", "2755", "1777", "0") }

// regular returns a path that is never a symbolic link.
func (g *generator) regular() string { return fmt.Sprintf("%s/r%d", g.pick("A", "B"), g.IntN(3)) }

// file returns the path of a file, mostly of an existing one.
func (g *generator) file() string {
	made := slices.Sorted(maps.Keys(g.sizes))
	if len(made) == 0 || g.IntN(6) == 0 {
		return g.anyFile()
	}
	return made[g.IntN(len(made))]
}

// anyFile returns one of a few paths, so that operations affect the same files.
func (g *generator) anyFile() string {
	switch g.IntN(5) {
	case 0:
		return fmt.Sprintf("%s/f%d", g.dir(), g.IntN(2))
	case 1:
		return fmt.Sprintf("%s/f%d", g.pick("A", "B"), g.IntN(2))
	default:
		return g.regular()
	}
}

// name returns the path of a file or a directory.
func (g *generator) name() string {
	if g.IntN(4) == 0 {
		return g.dir()
	}
	return g.file()
}

func (g *generator) content() uint32 { return g.Uint32() }

// moment returns a random time in this century, in nanoseconds.
func (g *generator) moment() int64 { return 1e18 + g.Int64N(1e17) }

// offset returns a random offset, mostly near a multiple of a block size.
func (g *generator) offset() int64 {
	units := []int64{1, 512, 4096, 64 << 10, 128 << 10, 512 << 10, 1 << 20}
	unit := units[g.IntN(len(units))]
	off := unit * g.Int64N(min(64, maxFile/unit))
	switch g.IntN(4) {
	case 0:
		off += g.Int64N(3) - 1
	case 1:
		off += g.Int64N(4096)
	}
	return min(max(off, 0), maxFile)
}

// length returns a random length, mostly short; one in ten exceeds 1 MiB.
func (g *generator) length() int64 {
	switch g.IntN(10) {
	case 0, 1, 2:
		return 1 + g.Int64N(64)
	case 3, 4:
		return 1 + g.Int64N(8192)
	case 5, 6:
		return 4096 * (1 + g.Int64N(32))
	case 7, 8:
		return 1 + g.Int64N(300<<10)
	default:
		return 1<<20 + g.Int64N(1<<20)
	}
}

// spanOf returns a range that mostly overlaps the file of a handle.
func (g *generator) spanOf(h int) (off, n int64) { return g.spanIn(g.sizes[g.handles[h].path]) }

// spanIn returns a range that mostly begins within a size.
func (g *generator) spanIn(size int64) (off, n int64) {
	off, n = g.span()
	if off >= size && size > 0 && g.IntN(5) > 0 {
		off %= size
	}
	return off, n
}

// span returns a range within maxFile.
func (g *generator) span() (off, n int64) {
	off, n = g.offset(), g.length()
	return min(off, maxFile-n), n
}
