package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// Options say what to measure.
type Options struct {
	// MountPoint is the mount.
	MountPoint string
	// Devices are the directories to measure; none is all.
	Devices []string
	// Size is how large the files are.
	Size devices.Size
	// Baseline is a directory on tmpfs.
	Baseline string
	// Rounds is how often each row is measured. Default 5.
	Rounds int
	// Progress is told what is measured next; nil is not called.
	Progress func(line string)
}

// Row is the median of one measurement.
type Row struct {
	Device string `json:"device"`
	What   string `json:"what"`
	// Value is in Unit: bytes or operations a second.
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Ratio is Value to that of the baseline; 0 where that has none.
	Ratio float64 `json:"ratio,omitempty"`
	// All are the values of each round.
	All []float64 `json:"all"`
}

// Report is what a run measured.
type Report struct {
	MountPoint string       `json:"mount_point"`
	Size       devices.Size `json:"size"`
	Rounds     int          `json:"rounds"`
	Rows       []Row        `json:"rows"`
}

// baseName is what the baseline's rows are called.
const baseName = "tmpfs"

// Run measures. What it writes is removed, also after a failure.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	names, err := o.names()
	if err != nil {
		return Report{}, err
	}
	r := Report{MountPoint: o.MountPoint, Size: o.Size, Rounds: o.Rounds}
	dirs := []struct{ name, dir string }{{baseName, o.Baseline}}
	for _, n := range names {
		dirs = append(dirs, struct{ name, dir string }{n, filepath.Join(o.MountPoint, n)})
	}
	for _, d := range dirs {
		if err := r.directory(ctx, o, d.name, d.dir); err != nil {
			return r, err
		}
	}
	return r, nil
}

// names lists the device directories.
func (o Options) names() ([]string, error) {
	if len(o.Devices) > 0 {
		for _, n := range o.Devices {
			if _, err := os.Stat(filepath.Join(o.MountPoint, n)); err != nil {
				return nil, fmt.Errorf("device %q: no such directory in %s", n, o.MountPoint)
			}
		}
		return o.Devices, nil
	}
	entries, err := os.ReadDir(o.MountPoint)
	if err != nil {
		return nil, fmt.Errorf("list the devices: %w", err)
	}
	var out []string
	for _, e := range entries {
		if !slices.Contains([]string{".hmcfs", "keys", "publish", "nodes"}, e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

func (r *Report) directory(ctx context.Context, o Options, name, parent string) (err error) {
	dir, err := os.MkdirTemp(parent, "hmcfs-bench-")
	if err != nil {
		return fmt.Errorf("measure %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &subject{dir: dir, size: int64(o.Size)}
	for _, m := range measurements() {
		o.Progress(fmt.Sprintf("%s: %s", name, m.what))
		row := Row{Device: name, What: m.what, Unit: m.unit}
		for range o.Rounds {
			if err := ctx.Err(); err != nil {
				return err
			}
			v, err := s.time(ctx, m)
			if err != nil {
				return fmt.Errorf("measure %s of %s: %w", m.what, name, err)
			}
			row.All = append(row.All, v)
		}
		row.Value = median(row.All)
		if base := r.value(baseName, m.what); base > 0 {
			row.Ratio = row.Value / base
		}
		r.Rows = append(r.Rows, row)
	}
	return nil
}

// time runs one measurement once and returns units a second.
func (s *subject) time(ctx context.Context, m measurement) (float64, error) {
	begun := time.Now()
	n, err := m.run(ctx, s)
	if err != nil {
		return 0, err
	}
	return float64(n) / time.Since(begun).Seconds(), nil
}

func (r *Report) value(device, what string) float64 {
	for _, row := range r.Rows {
		if row.Device == device && row.What == what {
			return row.Value
		}
	}
	return 0
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join([]string{"DEVICE", "WHAT", "MEDIAN", "OF TMPFS"}, "\t"))
	for _, row := range r.Rows {
		value := fmt.Sprintf("%.0f %s", row.Value, row.Unit)
		if row.Unit == bytesPerSecond {
			value = fmt.Sprintf("%.2f GB/s", row.Value/1e9)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\n", row.Device, row.What, value, row.Ratio)
	}
	return t.Flush()
}
