package objects_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/memfd"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/keep"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestKilledWriters kills a process that changes files with SIGKILL at random moments. The
// next process finds every byte of every finished operation, the one under way in part at
// most, and no memory that belongs to nothing.
func TestKilledWriters(t *testing.T) {
	rounds := 5
	if more, err := strconv.Atoi(os.Getenv("HMCFS_TEST_KILLS")); err == nil {
		rounds = more
	}
	kit.Check(t)
	keeper, dir := newKeeper(t), t.TempDir()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for round := range rounds {
		seed := rng.Uint64() >> 1
		t.Logf("round %d: seed %d", round, seed)
		progress := killedAfter(t, keeper, dir, seed, time.Duration(20+rng.IntN(150))*time.Millisecond)
		checkKilled(t, keeper, dir, seed, progress, round == rounds-1)
		if t.Failed() {
			return
		}
	}
}

// killedAfter runs a writer, kills it once it has worked for a while, and returns how many
// operations each worker had started and finished.
func killedAfter(t *testing.T, keeper *keep.Store, dir string, seed uint64, life time.Duration) (progress [killWorkers][2]uint64) {
	t.Helper()
	file, err := memfd.Create("progress", 4096)
	if err != nil {
		t.Fatal(err)
	}
	words, err := memfd.MapWords(file, 0, 2*killWorkers)
	if err != nil {
		t.Fatal(err)
	}
	serve, client, err := keep.Pair()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(os.Args[0], asWriter, dir, fmt.Sprint(seed))
	cmd.ExtraFiles, cmd.Stderr = []*os.File{client, file}, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { serveKeeper(t, keeper, serve); close(ended) }()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	kit.Eventually(t, 20*time.Second, func() bool { return words.At(0).Load() > 0 })
	<-time.After(life)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if said.Len() > 0 {
		t.Fatalf("the writer: %s", said.String())
	}
	if err := serve.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	for i := range progress {
		progress[i] = [2]uint64{words.At(2 * i).Load(), words.At(2*i + 1).Load()}
	}
	if err := words.Unmap(); err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	return progress
}

func serveKeeper(t *testing.T, keeper *keep.Store, c *net.UnixConn) {
	if err := keeper.Serve(c); err != nil {
		t.Logf("the keeper: %v", err) // the end of the connection
	}
}

// killedFile describes a file as it was found, or as it should be.
type killedFile struct {
	there  bool
	device int
	bytes  []byte
}

// after returns the file after an operation.
func (f killedFile) after(op killOp) killedFile {
	if op.kind == "remove" {
		return killedFile{device: f.device}
	}
	f.there = true
	f.bytes = slices.Clone(f.bytes)
	end := op.off + op.n
	switch op.kind {
	case "write":
		f.bytes = grow(f.bytes, end)
		copy(f.bytes[op.off:], kit.Bytes(op.id, 0, op.n))
	case "cut":
		f.bytes = grow(f.bytes, op.off)[:op.off:op.off]
	case "punch", "zero":
		if op.kind == "zero" {
			f.bytes = grow(f.bytes, end)
		}
		if op.off < len(f.bytes) {
			clear(f.bytes[op.off:min(end, len(f.bytes))])
		}
	case "draft":
		f.bytes = kit.Bytes(op.id, 0, op.n)
	case "move":
		f.device = 1 - f.device
	}
	return f
}

func (f killedFile) equals(other killedFile) bool {
	return f.there == other.there && (!f.there || f.device == other.device && bytes.Equal(f.bytes, other.bytes))
}

// at returns a byte, 0 beyond the end.
func (f killedFile) at(i int) byte {
	if i < len(f.bytes) {
		return f.bytes[i]
	}
	return 0
}

// isBetween reports whether a file is as before an operation, as after it or, for those that
// are not one step, as in the middle of it.
func (f killedFile) isBetween(before, after killedFile, op killOp) bool {
	if f.equals(before) || f.equals(after) {
		return true
	}
	before.there = true // it is made first
	switch {
	case f.equals(before):
		return true
	case !f.there || f.device != before.device || op.kind != "write" && op.kind != "punch" && op.kind != "zero":
		return false
	case len(f.bytes) != len(before.bytes) && len(f.bytes) != len(after.bytes):
		return false
	}
	for i, b := range f.bytes {
		switch inside := i >= op.off && i < op.off+op.n; {
		case b == before.at(i), inside && b == after.at(i):
		default:
			return false
		}
	}
	return true
}

// checkKilled opens what a writer has left and compares it with what it had done. In the
// end it removes everything.
func checkKilled(t *testing.T, keeper *keep.Store, dir string, seed uint64, progress [killWorkers][2]uint64, last bool) {
	t.Helper()
	k, err := openKillStore(t.Context(), dir, keeper)
	if err != nil {
		t.Fatal(err)
	}
	r := &keptRig{rig: &rig{t: t, store: k.store, meta: k.meta, engine: k.engine, devs: k.devs}}
	r.checkLeases()
	total := checkProgress(r.rig, seed, progress)
	t.Logf("%d operations, %+v", total, k.store.Recovery())
	for _, root := range killRoots(r.rig) {
		entries, err := k.store.ReadDir(t.Context(), root, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := k.store.Unlink(t.Context(), root, e.Name); err != nil {
				t.Error(err)
			}
		}
	}
	k.store.ReleaseUnclaimed(t.Context())
	for _, d := range k.devs {
		if used := r.used(d.Info().Name); used != 0 {
			t.Errorf("%s: %d bytes in use after everything was removed", d.Info().Name, used)
		}
	}
	if err := k.meta.Check(t.Context(), func(p metadata.Problem) { t.Errorf("record: %+v", p) }); err != nil {
		t.Error(err)
	}
	if last {
		r.stop()
		return
	}
	k.store.Abandon()
	for _, d := range k.devs {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := k.engine.Close(); err != nil {
		t.Error(err)
	}
	if err := k.meta.Close(); err != nil {
		t.Error(err)
	}
}

func killRoots(r *rig) (roots [2]objects.Ino) {
	for i := range roots {
		roots[i] = r.root(fmt.Sprint("sim", i))
	}
	return roots
}

// checkProgress compares the files of all workers with what they had done, and returns the
// number of operations.
func checkProgress(r *rig, seed uint64, progress [killWorkers][2]uint64) (total uint64) {
	r.t.Helper()
	roots := killRoots(r)
	for w := range killWorkers {
		total += progress[w][1]
		script := newKillScript(seed, w)
		var files [killFiles]killedFile
		for range progress[w][1] {
			op := script.next()
			files[op.file] = files[op.file].after(op)
		}
		var under killOp
		if progress[w][0] > progress[w][1] {
			under = script.next()
		}
		for i, want := range files {
			after := want
			if under.kind != "" && under.file == i {
				after = want.after(under)
			}
			found := findKilled(r, roots, fmt.Sprintf("w%d-%d", w, i))
			if !found.isBetween(want, after, under) {
				r.t.Errorf("worker %d, file %d, after %d operations and under %+v:\nfound %s\nwant %s\nor %s", w, i, progress[w][1], under,
					found.text(want), want.text(found), after.text(found))
			}
		}
	}
	return total
}

func (f killedFile) text(other killedFile) string {
	return fmt.Sprintf("there %v, sim%d, %d bytes, first difference to the other at %d", f.there, f.device, len(f.bytes), kit.FirstDiff(f.bytes, other.bytes))
}

// findKilled reads a file, on whatever device it is.
func findKilled(r *rig, roots [2]objects.Ino, name string) (found killedFile) {
	r.t.Helper()
	for device, root := range roots {
		a, err := r.store.Lookup(r.ctx(), root, name)
		if err != nil {
			continue
		}
		if found.there {
			r.t.Errorf("%s is on both devices", name)
		}
		f := r.open(a.Ino)
		found = killedFile{there: true, device: device, bytes: r.read(f, 0, int(a.Size)+100)}
		longer := a.Size + 100_000
		if _, err := r.store.SetAttr(r.ctx(), a.Ino, objects.Change{Size: &longer}); err != nil {
			r.t.Error(err)
		}
		if tail := r.read(f, a.Size, 100_000); len(bytes.Trim(tail, "\x00")) > 0 {
			r.t.Errorf("%s has bytes beyond its end", name)
		}
		r.close(f)
	}
	return found
}
