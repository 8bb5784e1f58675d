package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

func (a keyVerbs) waitVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait [--published] [--timeout TIME] [--json] KEY...",
		Short: "Wait until keys exist",
		Long: "Return when each key names an object whose bytes are available or, with --published, when each is\n" +
			"published. Keys that do not exist in time fail.",
		Annotations: withTopic(topicKeys),
		Example:     "  hmcfs wait w0 --timeout 20s && python3 infer.py",
		Args:        arguments(1, -1, "at least one KEY"),
	}
	f := addKeyFlags(cmd)
	var timeout seconds
	published := cmd.Flags().Bool("published", false, "Wait until the keys are published.")
	cmd.Flags().Var(&timeout, "timeout", "How long to wait. Default: 20s for one key, 60s for several.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		pairs, err := keyArgs(args, a.Stdin, keysAlone)
		if err != nil {
			return err
		}
		limit, err := timeout.orDefault(len(pairs))
		if err != nil {
			return err
		}
		return a.onKeys(ctx, "wait", pairs, f, func(c hetero.Client, keys []string) (hetero.Results, error) {
			return c.Wait(ctx, keys, *published, limit)
		})
	})
}
