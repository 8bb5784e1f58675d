package tests

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// scriptCommands returns the commands that scripts have in addition to testscript's own.
func scriptCommands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	return map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"waitmount": cmdWaitMount, "mounted": cmdMounted, "tmpfs": cmdTmpfs, "fill": cmdFill, "cmpbytes": cmdCmpBytes,
		"faults": cmdFaults, "json": cmdJSON, "asnobody": cmdAsNobody, "lines": cmdLines, "waitfor": cmdWaitFor,
		"newer": cmdNewer,
	}
}

// until waits for a condition of a script.
func until(ts *testscript.TestScript, what string, cond func() bool) {
	deadline := time.After(mntPatience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			ts.Fatalf("not within %v: %s", mntPatience, what)
		case <-tick.C:
		}
	}
}

// waitmount DIR waits until a mount answers.
func cmdWaitMount(ts *testscript.TestScript, _ bool, args []string) {
	dir := onePath(ts, args)
	until(ts, dir+" is mounted", func() bool {
		_, err := os.Stat(filepath.Join(dir, ".hmcfs", "version"))
		return err == nil
	})
}

// waitfor FILE waits until a file exists; with ! until it does not.
func cmdWaitFor(ts *testscript.TestScript, neg bool, args []string) {
	name := onePath(ts, args)
	until(ts, name, func() bool {
		_, err := os.Lstat(name)
		return errors.Is(err, os.ErrNotExist) == neg
	})
}

// mounted DIR checks that hmcfs is mounted at DIR; ! mounted that nothing is mounted at it or
// below.
func cmdMounted(ts *testscript.TestScript, neg bool, args []string) {
	dir := onePath(ts, args)
	left := mnt.MountedBelow(dir)
	if neg == (len(left) != 0) {
		ts.Fatalf("mounted at or below %s: %q", dir, left)
	}
}

// tmpfs DIR mounts the kernel's tmpfs until the end of the script.
func cmdTmpfs(ts *testscript.TestScript, _ bool, args []string) {
	dir := onePath(ts, args)
	ts.Check(os.MkdirAll(dir, 0o755))
	ts.Check(unix.Mount("hmcfs-test", dir, "tmpfs", 0, ""))
	ts.Defer(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // leftovers are reported
}

// fill FILE SIZE SEED writes the content of a seed.
func cmdFill(ts *testscript.TestScript, neg bool, args []string) {
	name, size, seed := contentOf(ts, args)
	f, err := os.Create(name)
	ts.Check(err)
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size && err == nil; off += int64(len(buf)) {
		part := buf[:min(int64(len(buf)), size-off)]
		kit.FillAt(part, seed, off)
		_, err = f.Write(part)
	}
	err = errors.Join(err, f.Close())
	if neg != (err != nil) {
		ts.Fatalf("fill %s: %v", name, err)
	}
}

// cmpbytes FILE SIZE SEED compares a file with the content that fill writes. "prefix" as the
// size means the file's own size.
func cmdCmpBytes(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 3 && args[1] == "prefix" {
		st, err := os.Stat(ts.MkAbs(args[0]))
		ts.Check(err)
		args[1] = strconv.FormatInt(st.Size(), 10)
	}
	name, size, seed := contentOf(ts, args)
	if err := compare(name, size, seed); neg != (err != nil) {
		ts.Fatalf("cmpbytes %s: %v", name, err)
	}
}

func compare(name string, size int64, seed uint64) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the file was only read
	buf := make([]byte, 1<<20)
	for off := int64(0); ; {
		n, err := io.ReadFull(f, buf)
		if i := kit.DiffAt(buf[:n], seed, off); i >= 0 {
			return fmt.Errorf("differs at %d", off+int64(i))
		}
		off += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			if off != size {
				return fmt.Errorf("%d bytes, want %d", off, size)
			}
			return nil
		case err != nil:
			return err
		}
	}
}

func contentOf(ts *testscript.TestScript, args []string) (name string, size int64, seed uint64) {
	if len(args) != 3 {
		ts.Fatalf("want FILE SIZE SEED")
	}
	n, err := devices.ParseSize(args[1])
	ts.Check(err)
	seed, err = strconv.ParseUint(args[2], 10, 64)
	ts.Check(err)
	return ts.MkAbs(args[0]), int64(n), seed
}

// faults [RULE…] makes the devices of mounts that are started from now on follow the rules of
// mnt.Faults, one in each argument, until the next faults.
func cmdFaults(ts *testscript.TestScript, _ bool, args []string) {
	f := mnt.Faults(ts.MkAbs("faults.rules"))
	ts.Check(f.Write(args...))
	name, value, _ := strings.Cut(f.Env(), "=")
	ts.Setenv(name, value)
}

// json FILE PATH [VALUE] checks that a file, or stdout, is JSON that has a value at the path,
// such as devices.0.name; ! json that it has none.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || len(args) > 3 {
		ts.Fatalf("want FILE PATH [VALUE]")
	}
	text := ts.ReadFile(args[0])
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		ts.Fatalf("no JSON: %v: %s", err, text)
	}
	found := true
	for part := range strings.SplitSeq(args[1], ".") {
		v, found = step(v, part)
		if !found {
			break
		}
	}
	if found && len(args) == 3 {
		found = fmt.Sprint(v) == args[2]
	}
	if found == neg {
		ts.Fatalf("%s is %v in %s", args[1], v, text)
	}
}

// step follows one element of a path into a JSON value.
func step(v any, part string) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		w, ok := v[part]
		return w, ok
	case []any:
		if part == "len" {
			return len(v), true
		}
		if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(v) {
			return v[i], true
		}
	}
	return nil, false
}

// lines stdout|stderr N checks the number of lines.
func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("want stdout|stderr N")
	}
	text := strings.TrimRight(ts.ReadFile(args[0]), "\n")
	n := strings.Count(text, "\n") + 1
	if text == "" {
		n = 0
	}
	if (strconv.Itoa(n) == args[1]) == neg {
		ts.Fatalf("%s has %d lines: %s", args[0], n, text)
	}
}

// newer STATE VERSION makes the records of a dead mount look as if a newer hmcfs had written
// them: the superblock, which follows a byte with its own version, starts with the version of
// the whole.
func cmdNewer(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("want STATE VERSION")
	}
	version, err := strconv.ParseUint(args[1], 10, 64)
	ts.Check(err)
	kv, err := badgerkv.Open(context.Background(), badgerkv.Options{Dir: filepath.Join(ts.MkAbs(args[0]), "metadata")})
	ts.Check(err)
	superblock := []byte{'S'}
	err = kv.Update(context.Background(), func(tx metadata.KVTxn) error {
		old, gerr := tx.Get(superblock)
		if gerr != nil {
			return gerr
		}
		_, n := binary.Uvarint(old[1:])
		if n <= 0 {
			return fmt.Errorf("superblock %x: %w", old, metadata.ErrCorrupt)
		}
		return tx.Set(superblock, append(binary.AppendUvarint([]byte{old[0]}, version), old[1+n:]...))
	})
	ts.Check(errors.Join(err, kv.Close()))
}

// asnobody COMMAND… runs a program as an unprivileged user. hmcfs is in its PATH.
func cmdAsNobody(ts *testscript.TestScript, neg bool, args []string) {
	bin := ts.MkAbs(ts.Getenv("WORK") + "/nobody-bin")
	if _, err := os.Stat(bin); err != nil {
		exe, err := os.Executable()
		ts.Check(err)
		ts.Check(os.Mkdir(bin, 0o755))
		if err := os.Link(exe, bin+"/hmcfs"); err != nil {
			ts.Check(ts.Exec("cp", exe, bin+"/hmcfs"))
		}
		ts.Check(os.Chmod(bin+"/hmcfs", 0o755))
	}
	setpriv := append([]string{
		"PATH=" + bin + ":" + ts.Getenv("PATH"),
		"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all",
	}, args...)
	err := ts.Exec("env", setpriv...)
	if neg != (err != nil) {
		ts.Fatalf("asnobody %q: %v", args, err)
	}
}

func onePath(ts *testscript.TestScript, args []string) string {
	if len(args) != 1 {
		ts.Fatalf("want one path")
	}
	return ts.MkAbs(args[0])
}
