package lint

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// below returns the layers that each layer may import besides itself: those to its right in
// cmd → fs → objects → {transport → devices, metadata}.
func below() map[string][]string {
	return map[string][]string{
		"cmd":       {"fs", "objects", "transport", "devices", "metadata"},
		"fs":        {"objects", "transport", "devices", "metadata"},
		"objects":   {"transport", "devices", "metadata"},
		"transport": {"devices"},
		"devices":   nil,
		"metadata":  nil,
	}
}

// checkLayers finds imports that go upward or sideways.
func checkLayers(t *Tree) []Offence {
	order := below()
	return t.each(func(f *File) []Offence {
		from := f.layer()
		if from == "tests" {
			return nil // drives everything; who may import it is test-only
		}
		allowed, known := order[from]
		var out []Offence
		for _, i := range f.imports() {
			dir, ours := i.ours()
			to := layerOf(dir)
			switch {
			case !ours || to == "tests":
			case !known:
				out = append(out, f.offence(i.Pos, "%q is no layer, and imports %s", from, dir))
			case to != from && !slices.Contains(allowed, to):
				out = append(out, f.offence(i.Pos, "%s must not import %s (%s)", from, to, dir))
			}
		}
		return out
	})
}

// checkMeetingPoint finds packages outside objects that use both metadata and data. The layers
// above objects refer to both by the types that objects accepts and returns, and the commands
// connect the layers by calling their constructors, so those may import all of them.
func checkMeetingPoint(t *Tree) []Offence {
	type seen struct{ metadata, data *Offence }
	packages := make(map[string]*seen)
	for _, f := range t.Files {
		if f.Test || slices.Contains([]string{"cmd", "fs", "objects", "tests"}, f.layer()) {
			continue
		}
		s := packages[f.Dir]
		if s == nil {
			s = new(seen)
			packages[f.Dir] = s
		}
		for _, i := range f.imports() {
			dir, ours := i.ours()
			if !ours {
				continue
			}
			o := f.offence(i.Pos, "metadata and data meet only in objects, but %s imports both", f.Dir)
			switch layerOf(dir) {
			case "metadata":
				s.metadata = &o
			case "devices", "transport":
				s.data = &o
			}
		}
	}
	var out []Offence
	for s := range maps.Values(packages) {
		if s.metadata != nil && s.data != nil {
			out = append(out, *s.metadata, *s.data)
		}
	}
	return out
}

// siblings returns packages that implement the same interface and must be independent of each
// other.
func siblings() map[string][]string {
	return map[string][]string{
		"devices":        {"host", "sim", "opencl", "cuda", "cudalike"},
		"transport":      {"tcp", "shm", "ucx"},
		"metadata":       {"badgerkv"},
		"metadata/coord": {"etcd"},
	}
}

// checkSiblings finds implementations of an interface that import another
// one, and the package that declares the interface importing any of them.
func checkSiblings(t *Tree) []Offence {
	all := siblings()
	return t.each(func(f *File) []Offence {
		if f.Test {
			return nil
		}
		var out []Offence
		for parent, names := range all {
			if !within(f.Dir, parent) {
				continue
			}
			own, _, _ := strings.Cut(strings.TrimPrefix(f.Dir[len(parent):], "/"), "/")
			if own != "" && !slices.Contains(names, own) {
				continue
			}
			for _, i := range f.imports() {
				dir, ours := i.ours()
				for _, name := range names {
					if ours && name != own && within(dir, parent+"/"+name) {
						out = append(out, f.offence(i.Pos, "%s must not know %s", f.Dir, dir))
					}
				}
			}
		}
		return out
	})
}

// transportLevels returns the packages of transport by level, each with those below it: a
// package imports only packages of earlier levels.
func transportLevels() [][]string {
	return [][]string{
		{"transport/nowait"},
		{"transport/wire", "transport/topology", "transport/internal"},
		{"transport/affinity"},
		{"transport"},
		{"transport/region"},
		{"transport/window"},
		{"transport/control"},
		{"transport/side", "transport/tcp", "transport/shm", "transport/ucx"},
		{"transport/comm"},
		{"transport/rpc", "transport/domain"},
		{"transport/collective/plan"},
		{"transport/collective/fabric"},
		{"transport/collective"},
		{"transport/collective/fusion", "transport/job"},
		{"transport/env"},
	}
}

// transportLevel returns the level of a directory of transport, and the package of that level to
// which it belongs; -1 if there is none.
func transportLevel(dir string) (level int, of string) {
	level = -1
	for i, names := range transportLevels() {
		for _, name := range names {
			if within(dir, name) && len(name) > len(of) {
				level, of = i, name
			}
		}
	}
	if of == "transport" && dir != "transport" {
		return -1, ""
	}
	return level, of
}

// checkTransport finds imports inside transport that go upward or sideways, and packages without
// a level.
func checkTransport(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		if f.Test || f.layer() != "transport" {
			return nil
		}
		level, own := transportLevel(f.Dir)
		var out []Offence
		for _, i := range f.imports() {
			dir, ours := i.ours()
			if !ours || layerOf(dir) != "transport" {
				continue
			}
			below, of := transportLevel(dir)
			switch {
			case level < 0 || below < 0:
				out = append(out, f.offence(i.Pos, "%s or %s has no level in transportLevels", f.Dir, dir))
			case of != own && below >= level:
				out = append(out, f.offence(i.Pos, "%s must not import %s, which is not below it", f.Dir, dir))
			}
		}
		return out
	})
}

// checkTestOnly finds product code that imports test code.
func checkTestOnly(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		if f.Test || f.layer() == "tests" {
			return nil
		}
		var out []Offence
		for _, i := range f.imports() {
			dir, ours := i.ours()
			if ours && layerOf(dir) == "tests" {
				out = append(out, f.offence(i.Pos, "%s is for tests only", dir))
			}
			if i.Path == "testing" || i.within("testing") {
				out = append(out, f.offence(i.Pos, "testing is for tests only"))
			}
		}
		return out
	})
}

// checkShipped finds chains of imports, of any length, from the binary to test code.
func checkShipped(t *Tree) []Offence {
	type edge struct {
		to   string
		from Offence
	}
	edges := make(map[string][]edge)
	for _, f := range t.Files {
		if f.Test {
			continue
		}
		for _, i := range f.imports() {
			if dir, ours := i.ours(); ours {
				edges[f.Dir] = append(edges[f.Dir], edge{dir, f.offence(i.Pos, "")})
			}
		}
	}
	var out []Offence
	reached := map[string]string{"cmd/hmcfs": "cmd/hmcfs"}
	for todo := []string{"cmd/hmcfs"}; len(todo) > 0; todo = todo[1:] {
		for _, e := range edges[todo[0]] {
			if _, done := reached[e.to]; done {
				continue
			}
			way := reached[todo[0]] + " → " + e.to
			reached[e.to] = way
			todo = append(todo, e.to)
			if layerOf(e.to) == "tests" {
				e.from.Text = "the binary reaches " + way
				out = append(out, e.from)
			}
		}
	}
	return out
}

// owner is a directory that alone may import a library.
type owner struct {
	library string
	dir     string
	tests   bool // files of tests may import it too
}

// owners lists the libraries that one layer hides from the others.
func owners() []owner {
	return []owner{
		{"github.com/hanwen/go-fuse", "fs", true},
		{"github.com/dgraph-io/badger", "metadata/badgerkv", false},
		{"go.etcd.io/etcd", "metadata/coord/etcd", true},
		{"google.golang.org/grpc", "metadata/coord/etcd", false},
	}
}

// checkOwnedImports finds libraries that are used outside the layer that hides them.
func checkOwnedImports(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		var out []Offence
		for _, o := range owners() {
			if within(f.Dir, o.dir) || o.tests && (f.Test || f.layer() == "tests") {
				continue
			}
			for _, i := range f.imports() {
				if i.within(o.library) {
					out = append(out, f.offence(i.Pos, "only %s may import %s", o.dir, o.library))
				}
			}
		}
		return out
	})
}

// checkUnsafe finds uses of unsafe outside the files whose names permit it.
func checkUnsafe(t *Tree) []Offence {
	return t.each(func(f *File) []Offence {
		name := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.Path), ".go"), "_test")
		if strings.HasSuffix(name, "_unsafe") {
			return nil
		}
		return f.importing("unsafe", "belongs into a file named *_unsafe.go")
	})
}

// checkCgo finds cgo: the binary is static, and vendor libraries are opened at run time.
func checkCgo(t *Tree) []Offence {
	return t.each(func(f *File) []Offence { return f.importing("C", "cgo is not used here") })
}

// importing finds imports of one package.
func (f *File) importing(pkg, why string) []Offence {
	var out []Offence
	for _, i := range f.imports() {
		if i.Path == pkg {
			out = append(out, f.offence(i.Pos, "import %q: %s", pkg, why))
		}
	}
	return out
}
