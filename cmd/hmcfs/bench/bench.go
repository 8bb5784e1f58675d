package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// baseName is the name of the baseline in rows.
const baseName = "tmpfs"

// Run runs the measurements. It removes its files, also after a failure.
func Run(ctx context.Context, o Options) (report Report, err error) {
	o.EnsureDefaults()
	if err = o.Validate(); err != nil {
		return Report{}, err
	}
	names, err := o.names()
	if err != nil {
		return Report{}, err
	}
	base, done, err := o.baseline()
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, done()) }()
	r := &run{opts: &o, report: Report{MountPoint: o.MountPoint, Size: o.Size, Files: o.Files, Rounds: o.Rounds}}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(baseName, base); err != nil {
		return Report{}, err
	}
	for _, n := range names {
		if err := r.open(n, filepath.Join(o.MountPoint, n)); err != nil {
			return Report{}, err
		}
	}
	if os.Geteuid() != 0 {
		r.report.Notes = append(r.report.Notes, "stat: only root can drop the kernel's cache of names, so the names were cached")
	}
	if err := r.each(ctx); err != nil {
		return Report{}, err
	}
	if err := r.across(ctx); err != nil {
		return Report{}, err
	}
	return r.report, nil
}

// names lists the device directories.
func (o *Options) names() ([]string, error) {
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

// run is the state of a run; its first subject is the baseline.
type run struct {
	opts     *Options
	subjects []*subject
	report   Report
}

func (r *run) open(name, dir string) error {
	s, err := newSubject(name, dir, r.opts)
	if err != nil {
		return err
	}
	r.subjects = append(r.subjects, s)
	return nil
}

func (r *run) close() error {
	var errs []error
	for _, s := range r.subjects {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// each measures the rows that every directory has.
func (r *run) each(ctx context.Context) error {
	names := make([]string, len(r.subjects))
	for i, s := range r.subjects {
		names[i] = s.name
	}
	for _, w := range workloads() {
		probes := make([]Probe, len(r.subjects))
		for i, s := range r.subjects {
			probes[i] = w.probe(s)
			probes[i].Name = w.what + " of " + s.name
		}
		if err := r.measure(ctx, w.what, w.unit, names, probes); err != nil {
			return err
		}
	}
	return nil
}

// across measures copies between devices, in comparison with a copy inside the baseline.
func (r *run) across(ctx context.Context) error {
	const what = "copy across"
	base := r.subjects[0]
	names, probes := []string{base.name}, []Probe{base.copyTo(base)}
	for _, p := range pairs(r.subjects[1:]) {
		names = append(names, p[0].name+" to "+p[1].name)
		probes = append(probes, p[0].copyTo(p[1]))
	}
	if len(probes) == 1 {
		return nil
	}
	for i := range probes {
		probes[i].Name = what + ", " + names[i]
	}
	return r.measure(ctx, what, bytesPerSecond, names, probes)
}

// pairs lists the devices between which files are copied: the first two in both directions,
// then from one to the next, at most four.
func pairs(devs []*subject) [][2]*subject {
	const most = 4
	var out [][2]*subject
	for i := 1; i < len(devs) && len(out) < most; i++ {
		out = append(out, [2]*subject{devs[i-1], devs[i]})
		if i == 1 {
			out = append(out, [2]*subject{devs[1], devs[0]})
		}
	}
	return out
}

func (r *run) measure(ctx context.Context, what, unit string, names []string, probes []Probe) error {
	r.opts.Progress(what)
	all, err := Interleave(ctx, r.opts.Rounds, probes)
	if err != nil {
		return err
	}
	r.report.add(what, unit, names, all)
	return nil
}
