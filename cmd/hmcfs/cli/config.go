package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/transport/env"
)

func (a *app) configVerb() *cobra.Command {
	parent := &cobra.Command{
		Use:   "config",
		Short: "Show configuration options",
		Args:  arguments(1, 1, "a subcommand: show"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return unknownVerb(cmd, args[0])
		},
	}
	show := &cobra.Command{
		Use:   "show [flags of mount]",
		Short: "Show every option of mounts and collectives, with its value and source",
		Long: "Show the values that `hmcfs mount` would use with the same flags. In order of precedence, a\n" +
			"value comes from a flag, the environment, the user's config file, the system's config file or\n" +
			"the default. Options of collectives are set only in the environment, by their hmcfs or HCOMM name.",
		Args: arguments(0, 0, "no arguments"),
	}
	flags := addOptions(show, nil)
	asJSON := addJSON(show)
	parent.AddCommand(runs(show, func(_ context.Context, _ []string) error {
		s, err := flags.resolve(a)
		if err != nil {
			return err
		}
		c, err := env.Parse(a.Getenv)
		if err != nil {
			return usage(err)
		}
		if *asJSON {
			return printJSON(a.Stdout, append(daemon.Settings(s), variables(c)...))
		}
		if err := printSettings(a.Stdout, s); err != nil {
			return err
		}
		return printVariables(a.Stdout, c)
	}))
	return parent
}

func printSettings(w io.Writer, s *config.Settings) error {
	t := newTable(w, "OPTION", "VALUE", "SOURCE")
	for _, l := range s.List {
		t.row(l.Option.Name, l.Option.Show(&s.Options), l.Source)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

func variables(s *env.Settings) []adminapi.Setting {
	out := make([]adminapi.Setting, 0, len(s.List))
	for _, x := range s.List {
		out = append(out, adminapi.Setting{Name: x.Name, Value: x.Value, Source: x.Source})
	}
	return out
}

func printVariables(w io.Writer, s *env.Settings) error {
	fmt.Fprintln(w)
	t := newTable(w, "VARIABLE", "VALUE", "SOURCE")
	for _, x := range s.List {
		t.row(x.Name, cmp.Or(x.Value, "-"), x.Source)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	for _, text := range s.Warnings() {
		fmt.Fprintln(w, text)
	}
	return nil
}
