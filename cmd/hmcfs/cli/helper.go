package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// helperName is the name under which mount(8) calls the helper for the type hmcfs.
const helperName = "mount.hmcfs"

// The exit codes of mount(8).
const (
	mountUsage   = 1
	mountFailure = 32
)

// helperCall is a request of mount(8).
type helperCall struct {
	source, mountPoint string
	options            []string
	fake               bool
}

// runHelper executes a request of mount(8) as `hmcfs mount`.
func (a *app) runHelper(ctx context.Context, cancel context.CancelFunc) int {
	call, err := parseHelper(a.Args[1:])
	if err != nil {
		printError(a.Stderr, err)
		return mountUsage
	}
	if call.fake {
		return exitOK
	}
	// The daemon starts as hmcfs, not as the helper.
	a.Args = append([]string{filepath.Join(filepath.Dir(a.Args[0]), "hmcfs")}, call.args()...)
	switch a.runWithSignals(ctx, cancel) {
	case exitOK:
		return exitOK
	case exitUsage:
		return mountUsage
	default:
		return mountFailure
	}
}

// parseHelper reads SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE], in any
// order, as mount(8) writes it.
func parseHelper(args []string) (helperCall, error) {
	var call helperCall
	var places []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "-o" || arg == "-t" || arg == "-N":
			if i++; i == len(args) {
				return call, fmt.Errorf("%s needs a value", arg)
			}
			if arg == "-o" {
				call.options = append(call.options, args[i])
			}
		case strings.HasPrefix(arg, "-o"):
			call.options = append(call.options, arg[2:])
		case len(arg) > 1 && arg[0] == '-':
			// -s means sloppy, -n no mtab, -v verbose: they have no effect here. -f means
			// everything but the mount itself.
			if rest := strings.Trim(arg[1:], "sfnv"); rest != "" {
				return call, fmt.Errorf("unknown flag %s; %s is called by mount(8): mount -t hmcfs hmcfs MOUNTPOINT", arg, helperName)
			}
			call.fake = call.fake || strings.Contains(arg, "f")
		default:
			places = append(places, arg)
		}
	}
	if len(places) != 2 {
		return call, fmt.Errorf("%s needs SOURCE and MOUNTPOINT, %d given; it is called by mount(8): mount -t hmcfs hmcfs MOUNTPOINT", helperName, len(places))
	}
	call.source, call.mountPoint = places[0], places[1]
	return call, nil
}

// args returns the equivalent arguments of `hmcfs`. A source that is the path of a YAML
// file is the config file; any other is only a name, which mount(8) turns into a path if a
// file of that name happens to exist.
func (c helperCall) args() []string {
	args := []string{"mount"}
	if ext := filepath.Ext(c.source); filepath.IsAbs(c.source) && (ext == ".yaml" || ext == ".yml") {
		args = append(args, "--config", c.source)
	}
	for _, o := range c.options {
		args = append(args, "-o", o)
	}
	return append(args, "--", c.mountPoint)
}
