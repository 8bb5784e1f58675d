package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
)

func (a *app) versionVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version [--json]",
		Short: "Show the version",
		Args:  arguments(0, 0, "no argument"),
	}
	asJSON := addJSON(cmd)
	cmd.RunE = running(func(context.Context, []string) error {
		v := daemon.VersionOf(version)
		if *asJSON {
			return printJSON(a.out(), v)
		}
		_, err := fmt.Fprintf(a.out(), "hmcfs %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
		return err
	})
	return cmd
}
