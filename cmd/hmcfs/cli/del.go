package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

func (a keyVerbs) delVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "del [--json] KEY...",
		Short: "Remove keys",
		Long: "Remove keys, with the objects that hmcfs created for them and all replicas. A file that got its\n" +
			"key by mset or setfattr loses only the key; memory that a program has set remains the program's.\n" +
			"Reads in progress still return all of their bytes. A missing key is not a failure.",
		Annotations: withTopic(topicKeys),
		Example:     "  hmcfs del w0 w1\n  hmcfs ls-keys --json layer | jq -r '.[].key' | hmcfs del -",
		Args:        arguments(1, -1, "at least one KEY"),
	}
	f := addKeyFlags(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		pairs, err := keyArgs(args, a.Stdin, keysAlone)
		if err != nil {
			return err
		}
		return a.onKeys(ctx, "del", pairs, f, func(c hetero.Client, keys []string) (hetero.Results, error) {
			return c.Delete(ctx, keys)
		})
	})
}
