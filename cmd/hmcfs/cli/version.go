package cli

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
)

// release is the version of the sources, as CHANGELOG.md lists it. Packages and images take
// theirs from here.
const release = "0.1.0"

// version returns the release, followed by the commit if the program was built in a checkout.
func version() string {
	built, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	return withCommit(built.Settings)
}

// withCommit appends the commit to the release, as semantic versions name a build.
func withCommit(settings []debug.BuildSetting) string {
	var commit, dirty string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 8:
			commit = "+" + s.Value[:8]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ".dirty"
		}
	}
	if commit == "" {
		return release
	}
	return release + commit + dirty
}

func (a *app) versionVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version [--json]",
		Short: "Show the version",
		Args:  arguments(0, 0, "no arguments"),
	}
	asJSON := addJSON(cmd)
	return runs(cmd, func(context.Context, []string) error {
		v := daemon.VersionOf(version())
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
	v := daemon.VersionOf(version())
	return fmt.Sprintf("hmcfs %s (%s, %s/%s)", v.Version, v.Go, v.OS, v.Arch)
}
