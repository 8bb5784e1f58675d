package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/doctor"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/transport/affinity"
	"github.com/hmcfs/hmcfs/transport/env"
)

func (a *app) doctorVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [--apply] [--json] [MOUNTPOINT]",
		Short: "Check what a mount needs to work, and to be fast",
		Long: "Check the kernel, privileges, limits, devices and environment, and report the processors on\n" +
			"which threads and the interrupts of network cards should run; with a MOUNTPOINT, also where its\n" +
			"threads run. The exit code is 1 if a problem prevents a mount from working, else 0.",
		Args: arguments(0, 1, "one MOUNTPOINT, or none"),
	}
	asJSON := addJSON(cmd)
	apply := cmd.Flags().Bool("apply", false, "Move the interrupts of network cards to the processors of their NUMA node. Needs root; lasts until the machine is rebooted.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		r, err := a.examine(ctx, *apply)
		if err != nil {
			return err
		}
		if len(args) > 0 {
			if err = a.examineMount(ctx, r, args[0]); err != nil {
				return err
			}
		}
		err = answer(a.Stdout, *asJSON, r, printReport)
		if err == nil && r.Worst() == doctor.Problem {
			return &codeError{code: exitFailure, err: errSilent}
		}
		return err
	})
}

// examine checks this machine.
func (a *app) examine(ctx context.Context, apply bool) (*doctor.Report, error) {
	m := &doctor.Machine{UID: a.UID, Look: exec.LookPath, Locked: limit(unix.RLIMIT_MEMLOCK), Files: limit(unix.RLIMIT_NOFILE)}
	r := &doctor.Report{}
	r.Kernel(m)
	r.Privileges(m)
	var families []doctor.Family
	for _, driver := range daemon.Families(host.Options{}, nil).Drivers() {
		f := doctor.Family{Name: driver.Family()}
		found, err := driver.Discover(ctx)
		f.Devices = mapped(found, func(d devices.Found) devices.Info { return d.Info })
		if err != nil {
			f.Reason = err.Error()
		} else if len(found) == 0 {
			f.Reason = "none was found"
		}
		families = append(families, f)
	}
	r.Devices(families)
	_, err := config.Resolve(config.Inputs{
		Getenv: a.Getenv, Files: config.Files("", a.Getenv), Families: daemon.FamilyParams(),
	})
	_, collectives := env.Parse(a.Getenv)
	r.Environment(errors.Join(err, collectives))
	g, err := a.discoverTopology(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := affinity.Make(affinity.Options{Graph: g})
	if err != nil {
		return nil, err
	}
	r.Placement(plan)
	if apply {
		r.Moved(plan.ApplyIRQs(""))
	}
	return r, nil
}

// limit returns the hard limit of a resource, to which a process may raise its own limit.
func limit(resource int) uint64 {
	var lim unix.Rlimit
	if unix.Getrlimit(resource, &lim) != nil {
		return 0
	}
	return lim.Max
}

func (a *app) examineMount(ctx context.Context, r *doctor.Report, mountPoint string) error {
	m, err := a.findMount(mountPoint)
	if err != nil {
		return err
	}
	c, err := a.connect(ctx, m)
	if err != nil {
		return err
	}
	st, err := c.Status(ctx, false)
	if err != nil {
		return err
	}
	r.Threads(&doctor.Machine{}, st.PID)
	return nil
}

func printReport(w io.Writer, r *doctor.Report) error {
	t := newTable(w, "AREA", "", "FOUND")
	for _, f := range r.Findings {
		text := f.What
		if f.Remedy != "" {
			text += "; " + f.Remedy
		}
		t.row(f.Area, f.Level, text)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if r.Affinity == nil || len(r.Affinity.Threads) == 0 {
		return nil
	}
	t = newTable(w, "\nTHREADS OF", "NUMA", "PROCESSORS")
	for _, th := range r.Affinity.Threads {
		t.row(th.Device, numaText(th.NUMA), th.CPUs)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if len(r.Affinity.IRQs) == 0 {
		return nil
	}
	t = newTable(w, "\nINTERRUPT", "NAME", "NIC", "NUMA", "SHOULD BE ON", "IS ON")
	for _, q := range r.Affinity.IRQs {
		t.row(q.Number, q.Name, q.NIC, numaText(q.NUMA), q.CPUs, q.Now)
	}
	return t.Flush()
}
