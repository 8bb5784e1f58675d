package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// victim is a user that performs normal operations and checks every result.
type victim struct {
	role
	say     *speaker
	watch   stopwatch
	numbers atomic.Uint64
}

// home is a victim's directories on one device, used by one goroutine.
type home struct {
	v      *victim
	random *rand.Rand
	// dir is the victim's own directory; its subdirectory private is accessible to the
	// victim only. shared is the directory of all users, with the sticky bit.
	dir, shared string
	// local is set if the device is one of the mount's own.
	local bool
	files map[string]*kept
}

// kept is the expected state of a file.
type kept struct {
	seed uint64
	size int
	mode os.FileMode
	attr string
}

const (
	// mostFiles bounds the number of files of a home, and mostBytes the size of each in
	// bytes.
	mostFiles = 24
	mostBytes = 256 << 10
	// attribute is the extended attribute that the victim sets.
	attribute = "user.victim"
)

func newVictim(r role, say *speaker) *victim {
	v := &victim{role: r, say: say}
	v.numbers.Store(r.Seed << 20)
	return v
}

// work performs random operations in each home until the input ends. Each line of the input
// ends a phase, whose name it contains.
func (v *victim) work(in io.Reader) error {
	stop := make(chan struct{})
	var working sync.WaitGroup
	var homes []*home
	for i, device := range []string{"host", "sim0", filepath.Join("nodes", v.Other, "host"), filepath.Join("nodes", v.Other, "sim0")} {
		h := &home{
			v: v, random: rand.New(rand.NewPCG(v.Seed, uint64(i))), //nolint:gosec // the seed has it done again
			dir: filepath.Join(v.Mount, device, v.Name), shared: filepath.Join(v.Mount, device, "shared"), local: i < 2, files: map[string]*kept{},
		}
		if err := os.Mkdir(filepath.Join(h.dir, "private"), 0o700); err != nil {
			return err
		}
		homes = append(homes, h)
		working.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(h.random.Int64N(int64(5 * time.Millisecond)))):
					h.step()
				}
			}
		})
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		v.say.say(word{Phase: lines.Text(), Latencies: v.watch.reset()})
	}
	close(stop)
	working.Wait()
	var files []left
	for _, h := range homes {
		for path := range h.files {
			h.compare(path)
			files = append(files, left{path, h.files[path].seed, h.files[path].size, h.files[path].mode})
		}
	}
	v.say.say(word{Files: files})
	return lines.Err()
}

// number returns a number that is unique within the victim.
func (v *victim) number() uint64 { return v.numbers.Add(1) }

// step performs a random operation and reports an error as a violation.
func (h *home) step() {
	kinds := []struct {
		name string
		do   func() error
	}{
		{"create", h.create},
		{"create", h.create},
		{"read", h.read},
		{"read", h.read},
		{"rewrite", h.rewrite},
		{"list", h.list},
		{"rename", h.rename},
		{kindMove, h.move},
		{"remove", h.remove},
		{"key", h.key},
		{"publish", h.publish},
		{"statfs", h.statfs},
	}
	k := kinds[h.random.IntN(len(kinds))]
	began := time.Now()
	err := k.do()
	where := "here"
	if !h.local {
		where = "of the other node"
	}
	h.v.watch.add(k.name+" "+where, time.Since(began))
	if err != nil {
		h.v.say.violation("victim: %s in %s: %v", k.name, h.dir, err)
	}
}

// some returns the path of a random file; empty if there is none.
func (h *home) some() string {
	all := slices.Sorted(maps.Keys(h.files))
	if len(all) == 0 {
		return ""
	}
	return all[h.random.IntN(len(all))]
}

// place returns a new path in the victim's own directories or in the shared one.
func (h *home) place() string {
	dir := [...]string{h.dir, filepath.Join(h.dir, "private"), h.shared}[h.random.IntN(3)]
	return filepath.Join(dir, fmt.Sprintf("%s-%d", h.v.Name, h.v.number()))
}

// create writes a file under a temporary name and renames it.
func (h *home) create() error {
	if len(h.files) >= mostFiles {
		return h.remove()
	}
	path := h.place()
	f := &kept{seed: h.v.number(), size: 1 + h.random.IntN(mostBytes), mode: [...]os.FileMode{0o600, 0o644, 0o640}[h.random.IntN(3)]}
	f.attr = fmt.Sprint(f.seed)
	if err := f.write(path+"~", os.O_CREATE|os.O_EXCL); err != nil {
		return err
	}
	h.files[path] = f
	return os.Rename(path+"~", path)
}

// write writes the file's content, mode and attribute.
func (f *kept) write(path string, flags int) error {
	file, err := os.OpenFile(path, os.O_WRONLY|flags, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(kit.Bytes(f.seed, 0, f.size))
	return errors.Join(err, file.Chmod(f.mode), unix.Fsetxattr(int(file.Fd()), attribute, []byte(f.attr), 0), file.Close())
}

func (h *home) read() error {
	if path := h.some(); path != "" {
		h.compare(path)
	}
	return nil
}

// compare checks that a file has its expected content, mode, owner and attribute.
func (h *home) compare(path string) {
	f := h.files[path]
	content, err := os.ReadFile(path)
	if err != nil {
		h.v.say.violation("victim: read %s: %v", path, err)
		return
	}
	h.v.same(path, f, content)
	var st unix.Stat_t
	if err = unix.Lstat(path, &st); err != nil || os.FileMode(st.Mode&0o7777) != f.mode || int(st.Uid) != os.Getuid() || st.Size != int64(f.size) {
		h.v.say.violation("victim: %s has mode %o, owner %d, size %d, %v; want %o, %d, %d", path, st.Mode, st.Uid, st.Size, err, f.mode, os.Getuid(), f.size)
	}
	value := make([]byte, 100)
	if n, err := unix.Getxattr(path, attribute, value); err != nil || string(value[:max(n, 0)]) != f.attr {
		h.v.say.violation("victim: %s has the attribute %q, %v; want %q", path, value[:max(n, 0)], err, f.attr)
	}
}

// same checks a content against the expected one.
func (v *victim) same(path string, f *kept, content []byte) {
	if at := kit.DiffAt(content, f.seed, 0); at >= 0 || len(content) != f.size {
		v.say.violation("victim: %s has %d bytes, wrong from byte %d on; want %d of seed %d", path, len(content), at, f.size, f.seed)
	}
}

// rewrite overwrites a file with new content.
func (h *home) rewrite() error {
	path := h.some()
	if path == "" {
		return nil
	}
	f := h.files[path]
	f.seed = h.v.number()
	f.attr = fmt.Sprint(f.seed)
	flags := 0
	if h.random.IntN(2) == 0 {
		flags, f.size = os.O_TRUNC, 1+h.random.IntN(mostBytes)
	}
	return f.write(path, flags)
}

// list checks the names in the victim's own directory, and that its names are present in
// the shared one.
func (h *home) list() error {
	for dir, exact := range map[string]bool{h.dir: true, h.shared: false} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		want := map[string]bool{}
		for path := range h.files {
			if filepath.Dir(path) == dir {
				want[filepath.Base(path)] = true
			}
		}
		want["private"] = exact
		for _, e := range entries {
			if exact && !want[e.Name()] {
				h.v.say.violation("victim: a strange name %q in %s", e.Name(), dir)
			}
			delete(want, e.Name())
		}
		for name, missing := range want {
			if missing {
				h.v.say.violation("victim: the name %q is missing in %s", name, dir)
			}
		}
	}
	return nil
}

// rename renames a file within its directory.
func (h *home) rename() error {
	from := h.some()
	if from == "" {
		return nil
	}
	return h.renameTo(from, filepath.Join(filepath.Dir(from), filepath.Base(h.place())))
}

// move renames a file to a new path, in its directory or another one.
func (h *home) move() error {
	from := h.some()
	if from == "" {
		return nil
	}
	return h.renameTo(from, h.place())
}

func (h *home) renameTo(from, to string) error {
	f := h.files[from]
	delete(h.files, from)
	h.files[to] = f
	return os.Rename(from, to)
}

func (h *home) remove() error {
	path := h.some()
	if path == "" {
		return nil
	}
	delete(h.files, path)
	return os.Remove(path)
}

// key sets a key on a file, reads the file by the key, and removes the key.
func (h *home) key() error {
	path := h.some()
	if path == "" {
		return nil
	}
	key := fmt.Sprintf("%s-%d", h.v.Name, h.v.number())
	if err := unix.Setxattr(path, "user.hmc.key", []byte(key), 0); err != nil {
		return fmt.Errorf("set key %s of %s: %w", key, path, err)
	}
	content, err := os.ReadFile(filepath.Join(h.v.Mount, "keys", key))
	if err == nil {
		h.v.same("keys/"+key, h.files[path], content)
	}
	return errors.Join(err, unix.Removexattr(path, "user.hmc.key"))
}

// publish moves a private file into publish/ and back, and checks its content.
func (h *home) publish() error {
	if !h.local {
		return nil
	}
	f := &kept{seed: h.v.number(), size: 1 + h.random.IntN(mostBytes), mode: 0o600}
	name := fmt.Sprintf("%s-%d", h.v.Name, h.v.number())
	path, offered := filepath.Join(h.dir, "private", name), filepath.Join(h.v.Mount, "publish", name)
	if err := f.write(path, os.O_CREATE|os.O_EXCL); err != nil {
		return err
	}
	if err := os.Rename(path, offered); err != nil {
		return err
	}
	if err := os.Rename(offered, path); err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	h.v.same(path, f, content)
	return os.Remove(path)
}

// statfs checks that the numbers of blocks are plausible.
func (h *home) statfs() error {
	var st unix.Statfs_t
	if err := unix.Statfs(h.dir, &st); err != nil {
		return err
	}
	if st.Blocks == 0 || st.Bavail > st.Blocks {
		h.v.say.violation("victim: statfs of %s: %d blocks, %d of them free", h.dir, st.Blocks, st.Bavail)
	}
	return nil
}

// victimOf reports whether a name belongs to a victim's file.
func victimOf(name string, victims []string) bool {
	return slices.ContainsFunc(victims, func(v string) bool { return strings.HasPrefix(name, v+"-") })
}
