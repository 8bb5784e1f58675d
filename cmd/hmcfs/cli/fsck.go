package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

func (a *app) fsckVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fsck [--repair] [--remove-lost] [--remove-aside] [--json] [--state-dir DIR | MOUNTPOINT]",
		Short: "Check and repair the records, and list or remove lost objects",
		Long: "Check a running mount, or the records that one left in its state directory. A lost object\n" +
			"is a file whose bytes were in device memory that no longer exists. A crash does not make\n" +
			"records contradict each other: if they do, hmcfs or the disk is faulty.\n\n" +
			"--repair corrects such records: a file without a name gets its name back, or one such as\n" +
			"ocl0/#1234; counts are recomputed; what can't be read, and names of nothing, are removed.\n" +
			"Every step is listed. Run without --repair first. Damaged records, which a mount refuses,\n" +
			"are recovered by --repair --state-dir DIR as far as they can be read: missing parts are\n" +
			"listed, and the damaged records are kept beside the recovered ones.\n\n" +
			"Host memory that had no record when records may have been lost is set aside: it uses space,\n" +
			"and each file is listed with its path. Copy what you need from there into the mount, as the\n" +
			"user who mounted; --remove-aside frees the rest.\n\n" +
			"Exit codes: 0 nothing to report, or everything repaired and removed; 4 there are lost\n" +
			"objects, or files set aside; 5 the records contradict each other.",
		Args: arguments(0, 1, "one MOUNTPOINT, --state-dir DIR or none"),
	}
	var stateDir string
	var r adminapi.FsckRequest
	cmd.Flags().StringVar(&stateDir, "state-dir", "", "Check the records in this state directory, which no daemon may be using.")
	cmd.Flags().BoolVar(&r.RemoveLost, "remove-lost", false, "Remove every lost object.")
	cmd.Flags().BoolVar(&r.RemoveAside, "remove-aside", false, "Free the host memory without records that was set aside.")
	cmd.Flags().BoolVar(&r.Repair, "repair", false, "Repair records that contradict each other, before looking for lost objects.")
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		if stateDir != "" && len(args) > 0 {
			return usage(errors.New("fsck takes either a MOUNTPOINT or --state-dir DIR; see hmcfs fsck --help"))
		}
		return a.fsck(ctx, args, stateDir, r, *asJSON)
	})
}

func (a *app) fsck(ctx context.Context, args []string, stateDir string, r adminapi.FsckRequest, asJSON bool) error {
	report, err := a.check(ctx, args, stateDir, r)
	if err != nil {
		return err
	}
	err = answer(a.Stdout, asJSON, report, printFsck)
	switch {
	case err != nil:
		return err
	case len(report.Problems) > report.Repaired:
		if !r.Repair {
			where := strings.Join(args, "")
			if stateDir != "" {
				where = "--state-dir " + stateDir
			}
			a.note("%s", strings.TrimSpace("to repair the records: hmcfs fsck --repair "+where))
		}
		return &codeError{code: exitProblems, err: errSilent}
	case len(report.Lost) > report.Removed || len(report.Aside) > report.RemovedAside:
		return &codeError{code: exitPartial, err: errSilent}
	}
	return nil
}

func (a *app) check(ctx context.Context, args []string, stateDir string, r adminapi.FsckRequest) (adminapi.FsckReport, error) {
	if stateDir != "" {
		return daemon.CheckState(ctx, stateDir, r)
	}
	_, c, err := a.daemonFor(ctx, args)
	if err != nil {
		return adminapi.FsckReport{}, err
	}
	return c.Fsck(ctx, r)
}

func printFsck(w io.Writer, r adminapi.FsckReport) error {
	for _, p := range r.Problems {
		switch {
		case p.Repaired:
			fmt.Fprintf(w, "repaired: %s: %s\n", shown(p.Text), shown(p.Done))
		case p.Fault != "":
			fmt.Fprintf(w, "problem:  %s: not repaired: %s\n", shown(p.Text), shown(p.Fault))
		default:
			fmt.Fprintf(w, "problem:  %s\n", shown(p.Text))
		}
	}
	for _, l := range r.Lost {
		word := "lost:     "
		if l.Removed {
			word = "removed:  "
		}
		fmt.Fprintf(w, "%s%s (%d bytes, %v)\n", word, shown(l.Path), l.Size, devices.Size(l.Size))
	}
	for _, f := range r.Aside {
		word := "set aside:"
		if f.Removed {
			word = "removed:  "
		}
		fmt.Fprintf(w, "%s %s (%d bytes, %v used, changed %s)\n", word, f.Path, f.Size, f.Used, f.Changed.UTC().Format(time.RFC3339))
	}
	_, err := fmt.Fprintf(w, "%d checked, %d problems, %d repaired, %d lost, %d removed\n",
		r.Checked, len(r.Problems), r.Repaired, len(r.Lost), r.Removed)
	return err
}
