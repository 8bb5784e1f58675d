package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

func (a *app) fsckVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fsck [--remove-lost] [--json] (--state-dir DIR | MOUNTPOINT)",
		Short: "Check the records, and list or remove lost objects",
		Long: "Check a running mount, or the records that one left in its state directory. A lost object\n" +
			"is a file whose bytes were in device memory that is gone.\n\n" +
			"Exit codes: 0 nothing to tell, or all lost objects removed; 4 lost objects are there;\n" +
			"5 the records contradict each other.",
		Args: arguments(0, 1, "one MOUNTPOINT or --state-dir DIR"),
	}
	var stateDir string
	var r adminapi.FsckRequest
	cmd.Flags().StringVar(&stateDir, "state-dir", "", "Check the records in this state directory, which no daemon uses.")
	cmd.Flags().BoolVar(&r.RemoveLost, "remove-lost", false, "Remove every lost object.")
	asJSON := addJSON(cmd)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if (stateDir == "") == (len(args) == 0) {
			return usage(errors.New("fsck needs either a MOUNTPOINT or --state-dir DIR; see hmcfs fsck --help"))
		}
		return running(func(ctx context.Context, args []string) error {
			return a.fsck(ctx, args, stateDir, r, *asJSON)
		})(c, args)
	}
	return cmd
}

func (a *app) fsck(ctx context.Context, args []string, stateDir string, r adminapi.FsckRequest, asJSON bool) error {
	report, err := a.check(ctx, args, stateDir, r)
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(a.out(), report)
	} else {
		err = printFsck(a.out(), report)
	}
	switch {
	case err != nil:
		return err
	case len(report.Problems) > 0:
		return &codeError{code: exitProblems, err: errSilent}
	case len(report.Lost) > report.Removed:
		return &codeError{code: exitPartial, err: errSilent}
	}
	return nil
}

func (a *app) check(ctx context.Context, args []string, stateDir string, r adminapi.FsckRequest) (adminapi.FsckReport, error) {
	if stateDir != "" {
		return daemon.CheckState(ctx, stateDir, r)
	}
	m, err := findMount(args[0])
	if err != nil {
		return adminapi.FsckReport{}, err
	}
	c, err := a.connect(ctx, m)
	if err != nil {
		return adminapi.FsckReport{}, err
	}
	return c.Fsck(ctx, r)
}

func printFsck(w io.Writer, r adminapi.FsckReport) error {
	for _, p := range r.Problems {
		fmt.Fprintf(w, "problem: %s\n", p.Text)
	}
	for _, l := range r.Lost {
		word := "lost:    "
		if l.Removed {
			word = "removed: "
		}
		fmt.Fprintf(w, "%s%s (%d bytes, %v)\n", word, l.Path, l.Size, devices.Size(l.Size))
	}
	_, err := fmt.Fprintf(w, "%d checked, %d problems, %d lost, %d removed\n",
		r.Checked, len(r.Problems), len(r.Lost), r.Removed)
	return err
}
