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
		Args:  arguments(0, 0, "no arguments"),
	}
	asJSON := addJSON(cmd)
	return runs(cmd, func(context.Context, []string) error {
		v := daemon.VersionOf(version)
		if *asJSON {
			return printJSON(a.Stdout, v)
		}
		_, err := fmt.Fprintln(a.Stdout, versionText())
		return err
	})
}

// versionText returns the version of the program and of what it was built with, in one
// line.
func versionText() string {
	v := daemon.VersionOf(version)
	return fmt.Sprintf("hmcfs %s (%s, %s/%s)", v.Version, v.Go, v.OS, v.Arch)
}
