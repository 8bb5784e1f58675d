package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
)

func (a *app) cpVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cp [-r] [-a] [-p] [-f] [-v | -q] [--mount MOUNTPOINT] [--json] SRC... DST",
		Short: "Copy files into, out of and between devices",
		Long: "Copy like cp(1), several files at a time, with large requests and a progress bar. Within one mount the\n" +
			"devices copy the bytes themselves; the report at the end names the path that the bytes took.\n\n" +
			"A source that can't be copied does not stop the others; the exit code is then 4. When a copy fails or is interrupted, a new target is removed, and an existing one is\n" +
			"truncated to what was copied. Modes are kept, holes stay holes, and dtype, shape and\n" +
			"blobs are copied too. The exit code is 130 after ^C and 143 after SIGTERM.\n\n" +
			"- stands for standard input or output.",
		Annotations: withTopic(topicFiles),
		Args:        arguments(2, -1, "SRC and DST"),
	}
	var o copier.Options
	var verbose, quiet bool
	cmd.Flags().BoolVarP(&o.Recursive, "recursive", "r", false, "Copy directories recursively.")
	cmd.Flags().BoolVarP(&o.Archive, "archive", "a", false, "Same as -r -p, and keep links and extended attributes.")
	cmd.Flags().BoolVarP(&o.Preserve, "preserve", "p", false, "Keep owner, set-ID bits and times.")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "Print a line for each file, also for several.")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "Print only errors.")
	cmd.Flags().BoolVarP(&o.Force, "force", "f", false, "Remove a target that can't be opened, and try again.")
	t := a.addMount(cmd)
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		defer t.close()
		target := args[len(args)-1]
		var err error
		switch {
		case verbose && quiet:
			err = usage(errors.New("-v and -q exclude each other; use one of them"))
		case target == standardStream && *asJSON:
			err = usage(errors.New("--json would mix with the bytes on standard output; leave it out, or copy to a file"))
		case isThroughSession(args):
			err = t.throughSession(ctx, args, &o)
		default:
			err = checkTarget(target)
		}
		if err != nil {
			return err
		}
		o.Recursive = o.Recursive || o.Archive
		o.Routes = verbose || *asJSON
		return a.cp(ctx, args[:len(args)-1], target, o, cpReport{asJSON: *asJSON, verbose: verbose, quiet: quiet})
	})
}

func (a *app) cp(ctx context.Context, sources []string, target string, o copier.Options, r cpReport) error {
	bar := &progress{to: a.Stderr, name: shortName(sources)}
	if !r.quiet {
		o.Started, o.Moved = bar.begin, bar.add
	}
	o.Ended = func(f copier.File) {
		if f.Err != nil {
			bar.say(fmt.Sprintf("hmcfs: %v", f.Err))
		}
	}
	s, err := copier.Copy(ctx, sources, target, o)
	bar.end()
	if _, ok := errors.AsType[*copier.UsageError](err); ok {
		return usage(err)
	}
	if err != nil && len(s.Files) == 0 {
		return err
	}
	if target != standardStream && !r.quiet {
		if perr := answer(a.Stdout, r.asJSON, s, r.print); perr != nil {
			return perr
		}
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &codeError{code: a.interrupted(), err: errSilent}
	case s.Failed < len(s.Files):
		return &codeError{code: exitPartial, err: errSilent}
	}
	return &codeError{code: exitFailure, err: errSilent}
}

// checkTarget refuses a target in the root directory of a mount, which contains only the
// directories of devices, and names these.
func checkTarget(target string) error {
	abs, err := place.Absolute(target)
	if err != nil {
		return err
	}
	m, found, err := place.MountOf(abs)
	if err != nil || !found {
		return nil //nolint:nilerror // the copy itself reports the error
	}
	if abs != m.MountPoint {
		if _, err = os.Lstat(abs); err == nil || filepath.Dir(abs) != m.MountPoint {
			return nil
		}
	}
	names := deviceNames(m.MountPoint)
	if names == nil {
		return nil // the copy itself tells what is wrong
	}
	dirs := mapped(names, func(name string) string { return filepath.Join(m.MountPoint, name) })
	return usage(fmt.Errorf("%s: files can only be in the directories of devices; copy into one of them: %s", target, strings.Join(dirs, ", ")))
}

// cpReport selects what cp prints at its end.
type cpReport struct{ asJSON, verbose, quiet bool }

// print prints a line for a file, and the total of several.
func (r cpReport) print(w io.Writer, s copier.Summary) error {
	good := 0
	var routes []string
	for _, f := range s.Files {
		if f.Err != nil {
			continue
		}
		good++
		if r.verbose || len(s.Files) == 1 {
			fmt.Fprintf(w, "%s -> %s: %s\n", shown(f.Source), shown(f.Target), figures(f.Bytes, f.Seconds, f.Path))
		}
		if f.Path != "" && !slices.Contains(routes, f.Path) {
			routes = append(routes, f.Path)
		}
	}
	if len(s.Files) > 1 {
		fmt.Fprintf(w, "%d files: %s\n", good, figures(s.Bytes, s.Seconds, strings.Join(routes, " ")))
	}
	return nil
}

func figures(bytes int64, seconds float64, path string) string {
	parts := []string{
		fmt.Sprintf("%d bytes (%v)", bytes, devices.Size(bytes)),
		fmt.Sprintf("%.3f s", seconds),
		rate(uint64(bytes), seconds),
	}
	if path != "" && bytes > 0 {
		parts = append(parts, path)
	}
	return strings.Join(parts, ", ")
}

func shortName(sources []string) string {
	if len(sources) == 1 {
		return sources[0]
	}
	return fmt.Sprintf("%d sources", len(sources))
}
