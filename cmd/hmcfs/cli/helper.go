package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// helperName is the name under which mount(8) calls the helper for the type hmcfs.
const helperName = "mount.hmcfs"

// The exit codes of mount(8).
const (
	mountUsage   = 1
	mountFailure = 32
)

// runHelper executes a request of mount(8) as `hmcfs mount`.
func (a *app) runHelper(ctx context.Context, cancel context.CancelFunc) int {
	args, fake, err := parseHelper(a.Args[1:])
	if err != nil {
		printError(a.Stderr, err)
		return mountUsage
	}
	if fake {
		return exitOK
	}
	// The daemon starts as hmcfs, not as the helper.
	a.Args = append([]string{filepath.Join(filepath.Dir(a.Args[0]), "hmcfs")}, args...)
	switch a.runWithSignals(ctx, cancel) {
	case exitOK:
		return exitOK
	case exitUsage:
		return mountUsage
	default:
		return mountFailure
	}
}

// parseHelper reads SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE], in any order, as
// mount(8) writes it, and returns the equivalent arguments of `hmcfs`. A source that is the
// path of a YAML file is the config file; any other is only a name, which mount(8) turns into
// a path if a file of that name happens to exist. fake is set if nothing is to be mounted.
func parseHelper(args []string) (out []string, fake bool, err error) {
	var places, options []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "-o" || arg == "-t" || arg == "-N":
			if i++; i == len(args) {
				return nil, false, fmt.Errorf("%s needs a value", arg)
			}
			if arg == "-o" {
				options = append(options, "-o", args[i])
			}
		case strings.HasPrefix(arg, "-o"):
			options = append(options, "-o", arg[2:])
		case len(arg) > 1 && arg[0] == '-':
			// -s means sloppy, -n no mtab, -v verbose: they have no effect here. -f means
			// everything but the mount itself.
			if rest := strings.Trim(arg[1:], "sfnv"); rest != "" {
				return nil, false, fmt.Errorf("unknown flag %s; %s is called by mount(8): mount -t hmcfs hmcfs MOUNTPOINT", arg, helperName)
			}
			fake = fake || strings.Contains(arg, "f")
		default:
			places = append(places, arg)
		}
	}
	if len(places) != 2 {
		return nil, false, fmt.Errorf("%s needs SOURCE and MOUNTPOINT, %d given; it is called by mount(8): mount -t hmcfs hmcfs MOUNTPOINT", helperName, len(places))
	}
	source, mountPoint := places[0], places[1]
	out = []string{"mount"}
	if ext := filepath.Ext(source); filepath.IsAbs(source) && (ext == ".yaml" || ext == ".yml") {
		out = append(out, "--config", source)
	}
	return slices.Concat(out, options, []string{"--", mountPoint}), fake, nil
}
