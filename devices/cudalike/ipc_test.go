package cudalike

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

const sharedSize = 3<<20 + 4099

// shared allocates memory that can be exported, with the bytes of the seed.
func shared(t testing.TB, dev devices.Device, seed uint64) *devices.Memory {
	t.Helper()
	mem, err := devices.AllocShared(t.Context(), dev, sharedSize, devices.HandleIPC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mem.Release(); err != nil {
			t.Error(err)
		}
	})
	put(t, mem, seed)
	return mem
}

// put writes the bytes of the seed over the whole memory.
func put(t testing.TB, mem *devices.Memory, seed uint64) {
	t.Helper()
	if err := mem.Device().CopyIn(t.Context(), mem.All(), kit.Bytes(seed, 0, int(mem.Size()))); err != nil {
		t.Fatal(err)
	}
}

// same checks that the memory contains the bytes of the seed from off on.
func same(t testing.TB, mem *devices.Memory, seed uint64, off int64) {
	t.Helper()
	got := make([]byte, mem.Size())
	if err := mem.Device().CopyOut(t.Context(), got, mem.All()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, kit.Bytes(seed, off, len(got))) {
		t.Errorf("bytes differ from those of seed %d at %d", seed, off)
	}
}

// exported returns a handle for the memory.
func exported(t testing.TB, mem *devices.Memory) devices.Handle {
	t.Helper()
	h, err := devices.Export(t.Context(), mem)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// imported opens the part of a handle; it is closed at the end of the test.
func imported(t testing.TB, dev devices.Device, h devices.Handle, off devices.Offset, n devices.Size) *devices.Memory {
	t.Helper()
	h.Offset, h.Size = off, n
	mem, err := devices.Import(t.Context(), dev, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mem.Release(); err != nil {
			t.Error(err)
		}
	})
	return mem
}

// exporter runs TestExporter in another process until stop, and returns its handle.
func (v vendorTest) exporter(t *testing.T) (h devices.Handle, stop func() string) {
	t.Helper()
	cmd := v.command(t, "TestExporter")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &h)
	}
	var said string
	stop = func() string {
		if cmd.ProcessState != nil {
			return said
		}
		_ = in.Close()
		var rest bytes.Buffer
		_, _ = rest.ReadFrom(lines)
		if werr := cmd.Wait(); werr != nil {
			t.Errorf("the other process: %v: %s", werr, rest.String())
		}
		said = rest.String()
		return said
	}
	t.Cleanup(func() { stop() })
	if err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	return h, stop
}

// TestExporter exports memory with the bytes of seed 21 and waits; then the memory must
// contain those of seed 22.
func TestExporter(t *testing.T) {
	v := child(t)
	mem := shared(t, v.open(t, 0), 21)
	text, err := json.Marshal(exported(t, mem))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stdout, "%s\n", text)
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	same(t, mem, 22, 0)
	fmt.Fprintln(os.Stdout, "the exporter has seen it")
}

// TestImportFromAnotherProcess reads and writes memory of another process: in parts, one of
// which is opened twice.
func TestImportFromAnotherProcess(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		dev := v.open(t, 0)
		h, stop := v.exporter(t)
		if h.Kind != devices.HandleIPC || h.Size != sharedSize || h.Allocation < sharedSize || h.Device != dev.Info().UUID {
			t.Errorf("%+v", h)
		}
		before, err := dev.Usage()
		if err != nil {
			t.Fatal(err)
		}
		part := imported(t, dev, h, 1234567, 54321)
		again := imported(t, dev, h, 1234567, 54321)
		whole := imported(t, dev, h, 0, sharedSize)
		same(t, part, 21, 1234567)
		same(t, whole, 21, 0)
		if u, err := dev.Usage(); err != nil || u.Used != before.Used {
			t.Errorf("another process's memory is counted: %+v, %v", u, err)
		}
		put(t, whole, 22)
		same(t, again, 22, 1234567)
		if err := dev.Copy(t.Context(), filled(t, dev, 0, 54321).All(), part.All()); err != nil {
			t.Error(err)
		}
		if _, err := devices.Export(t.Context(), whole); !errors.Is(err, devices.ErrUnsupported) {
			t.Errorf("export of an import: %v", err)
		}
		if said := stop(); !strings.Contains(said, "the exporter has seen it") {
			t.Errorf("the other process says %q", said)
		}
	})
}

// TestImporter opens the handle that it receives, checks the bytes of seed 31 and writes
// those of seed 32.
func TestImporter(t *testing.T) {
	v := child(t)
	var h devices.Handle
	if err := json.Unmarshal([]byte(os.Getenv("HMCFS_VENDOR_HANDLE")), &h); err != nil {
		t.Fatal(err)
	}
	mem := imported(t, v.open(t, 0), h, 0, h.Size)
	same(t, mem, 31, 0)
	put(t, mem, 32)
	fmt.Fprintln(os.Stdout, "the importer has seen it")
}

func TestExportToAnotherProcess(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		mem := shared(t, v.open(t, 0), 31)
		h := exported(t, mem)
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if again := exported(t, mem); !bytes.Equal(again.Bytes, h.Bytes) {
			t.Errorf("two names: %x, %x", h.Bytes, again.Bytes)
		}
		out, err := v.process(t, "TestImporter", "HMCFS_VENDOR_HANDLE="+string(text))
		if err != nil || !strings.Contains(out, "the importer has seen it") {
			t.Fatalf("%v: %s", err, out)
		}
		same(t, mem, 32, 0)
	})
}

// spoiled lists faults of handles that the suite does not cover: the handle identifies a
// real allocation of another process, but a field is wrong.
func spoiled(own devices.Handle) map[string]func(h *devices.Handle) {
	return map[string]func(h *devices.Handle){
		"empty":        func(h *devices.Handle) { h.Bytes = []byte{} },
		"too long":     func(h *devices.Handle) { h.Size = h.Allocation + 1 },
		"from behind":  func(h *devices.Handle) { h.Offset = devices.Offset(h.Allocation) },
		"one byte off": func(h *devices.Handle) { h.Bytes[len(h.Bytes)-2] ^= 0x55 },
		"of its maker": func(h *devices.Handle) { *h = own },
		"a longer one": func(h *devices.Handle) { h.Bytes = append(h.Bytes, 0) },
		"unterminated": func(h *devices.Handle) { h.Bytes = bytes.Repeat([]byte{'a'}, len(h.Bytes)) },
	}
}

func TestWrongHandles(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		dev := v.open(t, 0)
		h, stop := v.exporter(t)
		for name, change := range spoiled(exported(t, shared(t, dev, 1))) {
			bad := h
			bad.Bytes = bytes.Clone(h.Bytes)
			change(&bad)
			mem, err := devices.Import(t.Context(), dev, bad)
			if !errors.Is(err, devices.ErrHandle) {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil {
				_ = mem.Release()
			}
		}
		put(t, imported(t, dev, h, 0, sharedSize), 22)
		stop()
	})
}

// TestHandleThatLies claims that the allocation is longer than it is. If the runtime
// reports the length, that takes precedence.
func TestHandleThatLies(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		dev := v.open(t, 0)
		h, stop := v.exporter(t)
		liar := h
		liar.Allocation, liar.Size = 1<<40, h.Allocation+1
		mem, err := devices.Import(t.Context(), dev, liar)
		if knows := coreOf(t, dev).t.ipc.extent != nil; knows != errors.Is(err, devices.ErrHandle) {
			t.Errorf("%v", err)
		}
		if err == nil {
			if err = mem.Release(); err != nil {
				t.Error(err)
			}
		}
		liar.Allocation, liar.Size = 0, sharedSize
		mem, err = devices.Import(t.Context(), dev, liar)
		if knows := coreOf(t, dev).t.ipc.extent != nil; knows != (err == nil) {
			t.Errorf("no length: %v", err)
		}
		if err == nil {
			if err = mem.Release(); err != nil {
				t.Error(err)
			}
		}
		put(t, imported(t, dev, h, 0, sharedSize), 22)
		stop()
	})
}

// TestHandleOfAnotherCard checks that the handle is refused because of the card's UUID, if
// the runtime provides one.
func TestHandleOfAnotherCard(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		dev, other := v.pair(t)
		h, stop := v.exporter(t)
		if h.Device != "" {
			if _, err := devices.Import(t.Context(), other, h); !errors.Is(err, devices.ErrHandle) {
				t.Errorf("%v", err)
			}
		}
		put(t, imported(t, dev, h, 0, sharedSize), 22)
		stop()
	})
}

// TestOwnerIsGone opens a handle of a process that has ended, and uses memory of one that
// ends meanwhile.
func TestOwnerIsGone(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		dev := v.open(t, 0)
		h, stop := v.exporter(t)
		mem := imported(t, dev, h, 0, sharedSize)
		put(t, mem, 22)
		stop()
		same(t, mem, 22, 0)
		gone, stop := v.exporter(t)
		put(t, imported(t, dev, gone, 0, sharedSize), 22)
		third, stopThird := v.exporter(t)
		put(t, imported(t, dev, third, 0, sharedSize), 22)
		stopThird()
		stop()
		late := gone
		late.Bytes = bytes.Clone(gone.Bytes)
		fresh := v.openOn(t, v.onStandin(t), 0)
		if _, err := devices.Import(t.Context(), fresh, late); !errors.Is(err, devices.ErrHandle) {
			t.Errorf("%v", err)
		}
	})
}

// TestCloseWithImports closes the device before its imports.
func TestCloseWithImports(t *testing.T) {
	each(t, func(t *testing.T, v vendorTest) {
		dev := v.open(t, 0)
		h, stop := v.exporter(t)
		mem := imported(t, dev, h, 0, sharedSize)
		put(t, mem, 22)
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if err := dev.Fill(t.Context(), mem.All(), 1); !errors.Is(err, devices.ErrClosed) {
			t.Errorf("fill: %v", err)
		}
		if _, err := devices.Import(t.Context(), dev, h); !errors.Is(err, devices.ErrClosed) {
			t.Errorf("import: %v", err)
		}
		stop()
	})
}
