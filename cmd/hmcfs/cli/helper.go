package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// helperName is the name by which mount(8) calls the helper for type hmcfs.
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

// runHelper does what mount(8) asks for as `hmcfs mount`.
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
			// -s is for sloppy, -n for no mtab, -v for verbose: all the same
			// to us. -f is to do all but mount.
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

// args are the arguments of `hmcfs` that do the same. A source that is the
// path of a YAML file is the config file; any other is only a name, of which
// mount(8) makes a path when a file happens to be called so.
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
