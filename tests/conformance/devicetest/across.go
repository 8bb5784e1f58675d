package devicetest

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// The other process of RunShared runs the same test of the same binary, with one of these words
// as an argument.
const (
	wordImport = "devicetest-import"
	wordExport = "devicetest-export"
)

// acrossSize is the size, in bytes, of the memory that the two processes share: larger than any
// device's allocation unit, and not a multiple of one.
const acrossSize = 3<<20 + 4567

// The seeds of the bytes that the owner and the other process write.
const (
	seedOwner = 11
	seedOther = 12
)

// RunShared exports memory to another process, and imports memory of another one: each sees the
// bytes that the other has written. It starts the test binary again for the test that calls it,
// so that top-level test must do nothing else, and open must open the same card in both
// processes. It skips a device that cannot export.
func RunShared(t *testing.T, open Opener) {
	t.Helper()
	e := &env{T: t, open: open, ctx: t.Context()}
	e.dev = e.another()
	switch flag.Arg(0) {
	case wordImport:
		e.otherImports()
		return
	case wordExport:
		e.otherExports()
		return
	}
	kinds := devices.ExportKinds(e.dev)
	if len(kinds) == 0 {
		t.Skip("the device can't export memory")
	}
	for _, kind := range kinds {
		t.Run("export "+string(kind), func(t *testing.T) { e.with(t).exportAcross(kind) })
	}
	for _, kind := range kinds {
		if kind == devices.HandleIPC { // the other kinds would require passing a descriptor
			t.Run("import "+string(kind), func(t *testing.T) { e.with(t).importAcross(kind) })
		}
	}
}

// with returns an env with the same device for a subtest.
func (e *env) with(t *testing.T) *env {
	return &env{T: t, open: e.open, ctx: t.Context(), dev: e.dev}
}

// other returns a command that runs the test binary again. name is the top-level test.
func (e *env) other(word string) *exec.Cmd {
	e.Helper()
	name, _, _ := bytes.Cut([]byte(e.Name()), []byte("/"))
	cmd := exec.CommandContext(e.ctx, os.Args[0], "-test.run=^"+string(name)+"$", "-test.count=1", "-test.v", word)
	cmd.Stderr = os.Stderr
	return cmd
}

// exportAcross lets another process read and write memory of this one.
func (e *env) exportAcross(kind devices.HandleKind) {
	mem := e.shared(kind, Bytes(acrossSize, seedOwner))
	defer func() { e.release(mem) }()
	h, err := devices.Export(e.ctx, mem)
	e.ok(err)
	defer func() { e.ok(h.Close()) }()
	text, err := json.Marshal(h)
	e.ok(err)
	cmd := e.other(wordImport)
	cmd.Stdin = bytes.NewReader(text)
	if h.File != nil {
		cmd.ExtraFiles = []*os.File{h.File}
	}
	out, err := cmd.Output()
	if err != nil {
		e.Fatalf("the other process: %v\n%s", err, out)
	}
	e.sees(mem, seedOther)
}

// otherImports is the other process of exportAcross: it reads the owner's bytes, and writes.
func (e *env) otherImports() {
	var h devices.Handle
	e.ok(json.NewDecoder(os.Stdin).Decode(&h))
	if h.Kind != devices.HandleIPC {
		h.File = os.NewFile(3, "the handle")
		defer func() { _ = h.File.Close() }()
	}
	before := e.used()
	mem, err := devices.Import(e.ctx, e.dev, h)
	e.ok(err)
	again, err := devices.Import(e.ctx, e.dev, h)
	e.ok(err)
	if e.used() != before {
		e.Error("memory of another process is counted")
	}
	e.sees(mem, seedOwner)
	e.ok(e.dev.CopyIn(e.ctx, e.span(mem, 0, acrossSize), Bytes(acrossSize, seedOther)))
	e.release(mem)
	e.sees(again, seedOther)
	e.release(again)
	// A handle can be opened again after its last user has released it, and memory that is still
	// open is released with the device.
	mem, err = devices.Import(e.ctx, e.dev, h)
	e.ok(err)
	e.sees(mem, seedOther)
	e.ok(e.dev.Close())
	e.release(mem)
}

// sees checks the bytes that the two processes share.
func (e *env) sees(mem *devices.Memory, seed uint64) {
	e.Helper()
	got := make([]byte, acrossSize)
	e.ok(e.dev.CopyOut(e.ctx, got, e.span(mem, 0, len(got))))
	if err := Compare(got, Bytes(acrossSize, seed)); err != nil {
		e.Fatal(err)
	}
}

// importAcross uses memory of another process until that process has ended.
func (e *env) importAcross(kind devices.HandleKind) {
	cmd := e.other(wordExport)
	stdin, err := cmd.StdinPipe()
	e.ok(err)
	read, write, err := os.Pipe()
	e.ok(err)
	defer func() { _ = read.Close() }()
	cmd.ExtraFiles = []*os.File{write}
	var out bytes.Buffer
	cmd.Stdout = &out
	e.ok(cmd.Start())
	e.ok(write.Close())
	var h devices.Handle
	if err = json.NewDecoder(read).Decode(&h); err != nil {
		_ = stdin.Close()
		e.Fatalf("the other process gives no handle: %v, %v\n%s", err, cmd.Wait(), out.String())
	}
	mem, err := devices.Import(e.ctx, e.dev, h)
	if err == nil {
		e.sees(mem, seedOwner)
		e.ok(e.dev.CopyIn(e.ctx, e.span(mem, 0, acrossSize), Bytes(acrossSize, seedOther)))
		e.release(mem)
	}
	e.ok(stdin.Close())
	if werr := cmd.Wait(); err != nil || werr != nil {
		e.Fatalf("import of %s: %v, the other process: %v\n%s", kind, err, werr, out.String())
	}
	_, err = devices.Import(e.ctx, e.dev, h)
	e.fails("Import from a process that has ended", err, devices.ErrHandle)
}

// otherExports is the other process of importAcross: it owns the memory until its input ends,
// and then reads the importer's bytes.
func (e *env) otherExports() {
	mem := e.shared(devices.HandleIPC, Bytes(acrossSize, seedOwner))
	h, err := devices.Export(e.ctx, mem)
	e.ok(err)
	reply := os.NewFile(3, "the reply")
	e.ok(json.NewEncoder(reply).Encode(h))
	e.ok(reply.Close())
	_, err = io.Copy(io.Discard, os.Stdin)
	e.ok(err)
	e.sees(mem, seedOther)
	e.release(mem)
}
