package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
)

func (a *app) configVerb() *cobra.Command {
	parent := &cobra.Command{
		Use:   "config",
		Short: "Show the options",
		Args:  arguments(1, 1, "a verb: show"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return unknownVerb(cmd, args[0])
		},
	}
	show := &cobra.Command{
		Use:   "show [flags of mount]",
		Short: "Show every option of a mount, its value and where it comes from",
		Long: "Show what `hmcfs mount` with the same flags would use. The strongest source wins: a flag,\n" +
			"then the environment, then the user's config file, then the machine's, then the default.",
		Args: arguments(0, 0, "no argument"),
	}
	flags := addOptions(show)
	asJSON := addJSON(show)
	show.RunE = running(func(_ context.Context, _ []string) error {
		s, err := flags.resolve(a)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(a.out(), daemon.Settings(s))
		}
		return printSettings(a.out(), s)
	})
	parent.AddCommand(show)
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
