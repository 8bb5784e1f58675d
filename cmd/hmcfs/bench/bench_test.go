package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// mount makes a directory that looks like a mount with two devices.
func mount(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{".hmcfs", "keys", "ocl0", "sim0"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// left lists what is below a directory, besides the directory itself.
func left(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if path != dir {
			out = append(out, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRun(t *testing.T) {
	kit.Check(t)
	dir, base := mount(t), t.TempDir()
	before := left(t, dir)
	var told []string
	report, err := Run(t.Context(), Options{
		MountPoint: dir, Baseline: base, Size: 2*devices.MiB + 4096, Files: 10, Rounds: 2,
		Progress: func(line string) { told = append(told, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != len(workloads())+1 {
		t.Errorf("told of %q", told)
	}
	seen := map[string]int{}
	for _, row := range report.Rows {
		seen[row.Device]++
		if row.Value <= 0 || len(row.All) != 2 {
			t.Errorf("%s of %s: %v, rounds %v", row.What, row.Device, row.Value, row.All)
		}
		if want := row.Device != baseName && row.Unit != times; (row.Ratio > 0) != want {
			t.Errorf("%s of %s: ratio %v", row.What, row.Device, row.Ratio)
		}
	}
	n := len(workloads())
	want := map[string]int{baseName: n + 1, "ocl0": n, "sim0": n, "ocl0 to sim0": 1, "sim0 to ocl0": 1}
	for name, count := range want {
		if seen[name] != count {
			t.Errorf("%d rows of %s, want %d", seen[name], name, count)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("rows of %v", seen)
	}
	if after := left(t, dir); !slices.Equal(before, after) {
		t.Errorf("left behind: %q", after)
	}
	if after := left(t, base); len(after) > 0 {
		t.Errorf("left behind: %q", after)
	}
}

func TestRunOneDevice(t *testing.T) {
	kit.Check(t)
	report, err := Run(t.Context(), Options{
		MountPoint: mount(t), Devices: []string{"sim0"}, Baseline: t.TempDir(),
		Size: devices.MiB, Files: 2, Rounds: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range report.Rows {
		if row.Device != "sim0" && row.Device != baseName {
			t.Errorf("a row of %s", row.Device)
		}
	}
}

func TestRunPrivateTmpfs(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "root")
	t.Setenv("TMPDIR", t.TempDir()) // where a mount that is left is seen
	_, err := Run(t.Context(), Options{MountPoint: mount(t), Size: devices.MiB, Files: 2, Rounds: 1})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRunRefuses(t *testing.T) {
	kit.Check(t)
	dir := mount(t)
	for name, o := range map[string]Options{
		"no mount point": {},
		"device":         {MountPoint: dir, Devices: []string{"cuda7"}},
		"files of":       {MountPoint: dir, Size: 4096},
		"rounds":         {MountPoint: dir, Rounds: -1},
		"free":           {MountPoint: dir, Baseline: dir, Size: devices.TiB << 20},
	} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRunInterrupted(t *testing.T) {
	kit.Check(t)
	dir := mount(t)
	before := left(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, Options{
		MountPoint: dir, Baseline: t.TempDir(), Size: devices.MiB, Files: 2,
		Progress: func(line string) {
			if line == "copy inside" {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
	if after := left(t, dir); !slices.Equal(before, after) {
		t.Errorf("left behind: %q", after)
	}
}

func TestInterleave(t *testing.T) {
	kit.Check(t)
	var order strings.Builder
	probe := func(name string, v float64) Probe {
		return Probe{
			Name:    name,
			Prepare: func(context.Context) error { order.WriteString("-"); return nil },
			Run:     func(context.Context) (float64, error) { order.WriteString(name); return v, nil },
		}
	}
	all, err := Interleave(t.Context(), 3, []Probe{probe("a", 1), probe("b", 2)})
	if err != nil {
		t.Fatal(err)
	}
	if got := order.String(); got != "-a-b-b-a-a-b" {
		t.Errorf("order %s", got)
	}
	if !slices.Equal(all[0], Series{1, 1, 1}) || !slices.Equal(all[1], Series{2, 2, 2}) {
		t.Errorf("values %v", all)
	}
	broken := errors.New("broken")
	_, err = Interleave(t.Context(), 3, []Probe{{Name: "it", Run: func(context.Context) (float64, error) { return 0, broken }}})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "measure it") {
		t.Errorf("Interleave = %v", err)
	}
}

func TestSeries(t *testing.T) {
	for _, c := range []struct {
		in   Series
		want float64
	}{{nil, 0}, {Series{3}, 3}, {Series{9, 1, 2}, 2}, {Series{4, 1, 2, 100}, 3}} {
		if got := c.in.Median(); got != c.want {
			t.Errorf("median of %v = %v, want %v", c.in, got, c.want)
		}
	}
	if got := (Series{2, 6, 5}).Over(Series{1, 0, 10, 4}); !slices.Equal(got, Series{2, 0.5}) {
		t.Errorf("Over = %v", got)
	}
}

func TestWorkloads(t *testing.T) {
	kit.Check(t)
	ctx, dir := t.Context(), t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	const size = 3<<20 + 17
	for what, fn := range map[string]func() (int64, error){
		"write":  func() (int64, error) { return Write(ctx, a, size) },
		"copy":   func() (int64, error) { return Copy(ctx, b, a) },
		"read":   func() (int64, error) { return Read(ctx, b) },
		"mapped": func() (int64, error) { return ReadMapped(ctx, b) },
	} {
		if what != "write" {
			if _, err := Write(ctx, a, size); err != nil {
				t.Fatal(err)
			}
			if _, err := Copy(ctx, b, a); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := fn(); n != size || err != nil {
			t.Errorf("%s = %d, %v", what, n, err)
		}
	}
	one, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, two) || len(one) != size {
		t.Error("the copy differs")
	}
	if n, err := ReadAll(ctx, a, b); n != 2*size || err != nil {
		t.Errorf("ReadAll = %d, %v", n, err)
	}
	if n, err := RandomRead(ctx, a, 20); n != 20 || err != nil {
		t.Errorf("RandomRead = %d, %v", n, err)
	}
	if _, err := ReadMapped(ctx, filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ReadMapped of nothing = %v", err)
	}
}

func TestReport(t *testing.T) {
	r := Report{Notes: []string{"so it is"}}
	r.add("read", bytesPerSecond, []string{baseName, "sim0"}, []Series{{2e9, 4e9}, {1e9, 1e9}})
	r.add("stat", opsPerSecond, []string{baseName, "sim0"}, []Series{{100}, {50}})
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := `WHAT  DEVICE  MEDIAN     OF TMPFS
read  tmpfs   3.00 GB/s  -
read  sim0    1.00 GB/s  0.38
stat  tmpfs   100 ops/s  -
stat  sim0    50 ops/s   0.50
note: OF TMPFS is the median of the ratios of the rounds, not the ratio of the medians
note: so it is
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	data, err := json.Marshal(r.Rows[1])
	if err != nil {
		t.Fatal(err)
	}
	if got := string(data); got != `{"device":"sim0","what":"read","value":1000000000,"unit":"B/s","ratio":0.375,"all":[1000000000,1000000000]}` {
		t.Errorf("JSON %s", got)
	}
}
