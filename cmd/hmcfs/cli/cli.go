package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
)

// app is one execution of the command line.
type app struct {
	Env
	// force is closed on the second signal.
	force chan struct{}
	// orderly is set if the command must shut down in order, such as unmount, however long
	// that takes.
	orderly atomic.Bool
	// signal is the number of the first signal received; 0 means none.
	signal atomic.Int32
}

// verbGroup is the commands that stand together in help.
type verbGroup struct {
	name, title string
	verbs       []*cobra.Command
}

// verbs returns every command, in the groups in which help shows them.
func (a *app) verbs() []verbGroup {
	keys, watching, mounts := keyVerbs{a}, watchVerbs{a}, mountVerbs{a}
	return []verbGroup{
		{"mounts", "Mounts and devices:", []*cobra.Command{
			a.mountVerb(), a.serveVerb(), a.umountVerb(), mounts.upgradeVerb(), a.mountsVerb(), a.statusVerb(), watching.pageVerb(), a.devicesVerb(), a.doctorVerb(), a.fsckVerb(),
		}},
		{"files", "Files:", []*cobra.Command{
			a.lsVerb(), a.dfVerb(), a.statVerb(), a.cpVerb(), a.catVerb(), a.mvVerb(), a.rmVerb(), a.mkdirVerb(), a.verifyVerb(),
		}},
		{"keys", "Keys:", []*cobra.Command{
			keys.msetVerb(), keys.mgetVerb(), keys.publishVerb(), keys.subscribeVerb(), keys.d2hVerb(), keys.h2dVerb(),
			keys.lsKeysVerb(), keys.existVerb(), keys.waitVerb(), keys.expireVerb(), keys.delVerb(), keys.watchVerb(),
		}},
		{"hand-over", "Hand-over of memory between processes:", []*cobra.Command{a.bindVerb(), a.exportVerb()}},
		{"collectives", "Collectives and jobs:", append(mapped(collectives(), a.collectVerb), a.runVerb(), a.barrierVerb())},
		{"cluster", "Cluster and topology:", []*cobra.Command{a.nodesVerb(), a.topoVerb()}},
		{"measuring", "Watching and measuring:", []*cobra.Command{watching.topVerb(), a.benchVerb(), a.perfVerb()}},
		{"other", "Other:", []*cobra.Command{
			a.configVerb(), a.versionVerb(),
			a.docsVerb(), a.superviseVerb(), a.rankServerVerb(), a.runHostVerb(), a.guardVerb(), holdVerb(a),
		}},
	}
}

// root returns the tree of all commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "hmcfs",
		Short: "Mount device memory as files",
		Long: "hmcfs mounts the memory of GPUs and other accelerators, and pinned host memory, as a\n" +
			"filesystem with one directory for each device.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownVerb(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(a.Stdout, cmd) })
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		writeUsage(a.Stderr, cmd)
		return nil
	})
	root.CompletionOptions.DisableDescriptions = false
	for _, g := range a.verbs() {
		root.AddGroup(&cobra.Group{ID: g.name, Title: g.title})
		for _, verb := range g.verbs {
			verb.GroupID = g.name
			verb.DisableFlagsInUseLine = true // Use contains the flags
			root.AddCommand(verb)
		}
	}
	completer{a}.completeCommands(root)
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	root.SetFlagErrorFunc(flagFault)
	root.Version = version()
	root.SetVersionTemplate(versionText() + "\n")
	return root
}

func flagFault(cmd *cobra.Command, err error) error {
	hint := ""
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if near := config.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			hint = fmt.Sprintf(" (did you mean --%s?)", near)
		}
	}
	return usage(fmt.Errorf("%w%s; see %s --help", err, hint, cmd.CommandPath()))
}

func unknownVerb(root *cobra.Command, word string) error {
	names := mapped(root.Commands(), (*cobra.Command).Name)
	hint := fmt.Sprintf("see %s --help", root.CommandPath())
	if near := config.Nearest(word, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return usage(fmt.Errorf("unknown command %q; %s", word, hint))
}

// Run runs one command and returns its exit code.
func Run(ctx context.Context, env Env) int {
	nameProcess(env.Args)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	env.Stdout, env.Stderr = coloured(env.Stdout, env.Getenv), coloured(env.Stderr, env.Getenv)
	a := &app{Env: env, force: make(chan struct{})}
	if isHelper(env.Args) {
		return a.runHelper(ctx, cancel)
	}
	return a.runWithSignals(ctx, cancel)
}

// endTimeout is the time that a command may take to end after a signal; if it is orderly,
// after a second one.
const endTimeout = 3 * time.Second

// runWithSignals runs the command while it handles signals: the first one cancels the
// context, the second closes force. A command that still does not end hangs in a system
// call, such as one on a mount that does not answer, and is not waited for.
func (a *app) runWithSignals(ctx context.Context, cancel context.CancelFunc) int {
	done := make(chan int, 1)
	go func() { done <- a.execute(ctx) }()
	var late <-chan time.Time
	for count := 0; ; {
		select {
		case code := <-done:
			return code
		case <-late:
			fmt.Fprintln(a.Stderr, "hmcfs: exiting without waiting for the operation in progress")
			return a.interrupted()
		case got := <-a.Signals:
			switch count++; count {
			case 1:
				if n, ok := got.(syscall.Signal); ok {
					a.signal.Store(int32(n))
				}
				cancel()
				if !a.orderly.Load() {
					late = time.After(endTimeout)
				}
			case 2:
				close(a.force)
				late = time.After(endTimeout)
			}
		}
	}
}

func (a *app) execute(ctx context.Context) int {
	root := a.root() //nolint:contextcheck // cobra passes the context to the command
	root.SetArgs(a.Args[1:])
	err := root.ExecuteContext(ctx)
	if errors.Is(err, context.Canceled) && a.signal.Load() != 0 {
		a.note("interrupted")
		return a.interrupted()
	}
	var ran *ranError
	if err != nil && !errors.As(err, &ran) && exitCode(err) == exitFailure {
		// It is an error of cobra: an unknown command, or a wrong number of arguments.
		err = usage(err)
	}
	if err != nil {
		printError(a.Stderr, err)
	}
	return exitCode(err)
}

// ranError marks the errors of commands whose arguments were valid.
type ranError struct{ err error }

func (e *ranError) Error() string { return e.err.Error() }

func (e *ranError) Unwrap() error { return e.err }

// runs makes a command run a function, and returns the command.
func runs(cmd *cobra.Command, fn func(ctx context.Context, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := fn(cmd.Context(), args); err != nil {
			return &ranError{err: err}
		}
		return nil
	}
	return cmd
}

// arguments checks that there are between least and most arguments; most < 0 means no upper
// bound.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if slices.Contains(args, "") {
			return usage(fmt.Errorf("%s: an argument is empty; was a variable not set?", cmd.CommandPath()))
		}
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		return usage(fmt.Errorf("%s takes %s, %d given; see %s --help", cmd.CommandPath(), what, len(args), cmd.CommandPath()))
	}
}

// note prints a message to the user on standard error.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.Stderr, "hmcfs: "+format+"\n", args...)
}

// host returns the values on which the paths of mounts depend.
func (a *app) host() place.Host { return place.Host{UID: a.UID, Getenv: a.Getenv} }
