package tensors

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

const (
	// ViewSuffix is appended to the name of a file to form that of its view.
	ViewSuffix = ".tensors"

	npySuffix         = ".npy"
	safetensorsSuffix = ".safetensors"
	// maxName and maxPath are the kernel's limits for a name and a path.
	maxName = 255
	maxPath = 4095
)

// IsFile reports whether a name is that of a file of tensors.
func IsFile(name string) bool {
	return isNPY(name) || len(name) > len(safetensorsSuffix) && strings.HasSuffix(name, safetensorsSuffix)
}

func isNPY(name string) bool {
	return len(name) > len(npySuffix) && strings.HasSuffix(name, npySuffix)
}

// FileOf returns the file whose view has the name.
func FileOf(view string) (file string, ok bool) {
	file, ok = strings.CutSuffix(view, ViewSuffix)
	return file, ok && IsFile(file)
}

// onlyPart is the part of a .npy file that has its tensor, whatever the name of the file.
const onlyPart = "."

// PartOf returns a name for a tensor of a file, by the file's name and the tensor's path in
// the tree, that stays the same when the file is renamed; PathOf returns the path for it.
func PartOf(file, path string) string {
	if isNPY(file) && path == file {
		return onlyPart
	}
	return path
}

// PathOf returns the path of a tensor for the result of PartOf.
func PathOf(file, part string) string {
	if isNPY(file) && part == onlyPart {
		return file
	}
	return part
}

// File describes the contents of a file of tensors.
type File struct {
	// Tensors are in the order of their bytes.
	Tensors []Tensor
	// dirs has the entries of each directory, by its path, ordered by name. The root is "".
	dirs map[string][]Entry
}

// Entry is one name in the tree.
type Entry struct {
	Name string
	// Tensor is nil for a directory.
	Tensor *Tensor
}

// Parse reads the header of a file of the given size. The name determines the file's format.
//
// Errors: ErrFormat, and those of the reader.
func Parse(name string, r io.ReaderAt, size uint64) (*File, error) {
	var all []Tensor
	var err error
	if isNPY(name) {
		var t Tensor
		t, err = parseNPY(r, size)
		t.Path = name
		all = []Tensor{t}
	} else {
		all, err = parseSafetensors(r, size, MaxEntries)
	}
	if err != nil {
		return nil, err
	}
	f := &File{Tensors: all, dirs: map[string][]Entry{"": nil}}
	return f, f.plant()
}

// maxSingle is the size of the longest header that ParseSingle reads.
const maxSingle = 1 << 20

// ParseSingle returns the tensor of a file that contains exactly one: ok is false for a file
// with several, or with bytes after the tensor. It is cheap, whatever the file contains.
//
// Errors: ErrFormat, and those of the reader.
func ParseSingle(name string, r io.ReaderAt, size uint64) (t Tensor, ok bool, err error) {
	if isNPY(name) {
		t, err = parseNPY(r, size)
		t.Path = name
		return t, err == nil && t.Off+t.Len == size, err
	}
	n, err := safetensorsHeader(r, size)
	if err != nil || n > maxSingle {
		return Tensor{}, false, err
	}
	all, err := parseSafetensors(r, size, 1)
	if err != nil || len(all) != 1 {
		return Tensor{}, false, err
	}
	return all[0], true, nil
}

// plant builds the tree.
func (f *File) plant() error {
	left := MaxEntries - len(f.Tensors)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		entry := Entry{Tensor: t}
		for path := t.Path; ; entry = (Entry{}) {
			dir, name := split(path)
			entry.Name = name
			_, known := f.dirs[dir]
			f.dirs[dir] = append(f.dirs[dir], entry)
			if known {
				break
			}
			if left--; left < 0 {
				return fmt.Errorf("%w: more than %d tensors and directories", ErrFormat, MaxEntries)
			}
			path = dir
		}
	}
	for dir, entries := range f.dirs {
		slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
		for i := 1; i < len(entries); i++ {
			if entries[i].Name == entries[i-1].Name {
				return fmt.Errorf("%w: tensor %q: another tensor or a directory has the same name", ErrFormat,
					strings.TrimSuffix(path.Join(dir, entries[i].Name), npySuffix))
			}
		}
	}
	return nil
}

func split(path string) (dir, name string) {
	at := strings.LastIndexByte(path, '/')
	if at < 0 {
		return "", path
	}
	return path[:at], path[at+1:]
}

// Find returns the entry of the tree at a path; "" is its root.
func (f *File) Find(path string) (Entry, bool) {
	if path == "" {
		return Entry{}, true
	}
	dir, name := split(path)
	entries := f.dirs[dir]
	i, found := slices.BinarySearchFunc(entries, name, func(e Entry, name string) int { return cmp.Compare(e.Name, name) })
	if !found {
		return Entry{}, false
	}
	return entries[i], true
}

// List returns the entries of a directory ordered by name; none if the directory does not exist.
// They must not be changed.
func (f *File) List(dir string) []Entry { return f.dirs[dir] }

// Memory returns the approximate number of bytes of memory that the File uses.
func (f *File) Memory() uint64 {
	const perTensor, perEntry, perDir = 160, 32, 96
	var n uint64
	for i := range f.Tensors {
		t := &f.Tensors[i]
		n += perTensor + uint64(len(t.Path)+8*len(t.Shape))
	}
	for _, entries := range f.dirs {
		n += perDir + perEntry*uint64(len(entries))
	}
	return n
}

// pathOf converts the name of a tensor to a path of the tree.
func pathOf(name string) (string, error) {
	fault := func(why string) error {
		return fmt.Errorf("%w: tensor %.60q: its name %s", ErrFormat, name, why)
	}
	switch {
	case strings.HasPrefix(name, "/"):
		return "", fault("is an absolute path")
	case len(name)+len(npySuffix) > maxPath:
		return "", fault("is too long for a path")
	case strings.IndexByte(name, 0) >= 0:
		return "", fault("contains a zero byte")
	}
	path := name + npySuffix
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "":
			return "", fault("has an empty component")
		case part == "." || part == "..":
			return "", fault("has the component " + part)
		case len(part) > maxName:
			return "", fault("has a component that is too long for a file name")
		}
	}
	if _, last := split(path); len(last) > maxName {
		return "", fault("has a component that is too long for a file name")
	}
	return path, nil
}
