package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/top"
)

// topFlags are the flags of top.
type topFlags struct {
	once, asJSON bool
	interval     time.Duration
}

// watchVerbs are the commands that show what a mount is doing.
type watchVerbs struct{ *app }

func (a watchVerbs) topVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top [--once [--json]] [--interval TIME] [MOUNTPOINT]",
		Short: "Show what a mount is doing: devices, processes, paths, sessions, nodes, slow operations",
		Long: "Show, full screen, what a mount is doing: the use and the rates of its devices, the processes that\n" +
			"read and write, the paths that the bytes take, sessions, nodes, and operations that took more than\n" +
			"100 ms. A line at the bottom lists the keys, and ? explains them. If the daemon goes away, the view\n" +
			"waits for it to return.\n\n" +
			"--once prints every table once, with rates over the interval, and ends. Bytes of host files that the\n" +
			"kernel serves itself (passthrough) are not counted.",
		Example: "  hmcfs top\n  hmcfs top --once --json | jq '.devices[] | {name, bytes_per_second}'",
		Args:    arguments(0, 1, "one MOUNTPOINT, or none"),
	}
	f := &topFlags{}
	cmd.Flags().BoolVar(&f.once, "once", false, "Print the tables once, as text, and end.")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "With --once: print JSON. Fields are only ever added.")
	cmd.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "Time between two samples; with --once, 1s by default.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		if f.once && !cmd.Flags().Changed("interval") {
			f.interval = time.Second
		}
		return a.top(ctx, args, f)
	})
}

func (a watchVerbs) top(ctx context.Context, args []string, f *topFlags) error {
	if f.asJSON && !f.once {
		return usage(errors.New("--json needs --once"))
	}
	if f.interval < top.MinInterval || f.interval > time.Hour {
		return usage(fmt.Errorf("--interval %v is not between %v and 1h", f.interval, top.MinInterval))
	}
	out, isFile := a.Stdout.(interface{ Fd() uintptr })
	if !f.once && (!isFile || !term.IsTerminal(int(out.Fd()))) {
		return usage(errors.New("standard output is not a terminal; use --once for text"))
	}
	_, c, err := a.daemonFor(ctx, args)
	if err != nil {
		return err
	}
	if !f.once {
		return top.Run(ctx, c, top.Options{Interval: f.interval, In: a.Stdin, Out: a.Stdout})
	}
	r, err := top.Once(ctx, c, f.interval)
	if err != nil {
		return err
	}
	return answer(a.Stdout, f.asJSON, r, func(w io.Writer, r top.Report) error { return r.Print(w) })
}
