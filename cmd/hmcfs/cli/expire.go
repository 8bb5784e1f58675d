package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

func (a keyVerbs) expireVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "expire --ttl TIME [--json] KEY...",
		Short: "Set the time to live of keys",
		Long: "Have the objects of the keys removed after a time, in whole seconds from now; 0 keeps them\n" +
			"forever. The time also passes while nothing is mounted.",
		Annotations: withTopic(topicKeys),
		Example:     "  hmcfs expire --ttl 30s w0\n  hmcfs expire --ttl 0 w0",
		Args:        arguments(1, -1, "at least one KEY"),
	}
	f := addKeyFlags(cmd)
	var ttl seconds
	cmd.Flags().Var(&ttl, "ttl", "How long from now, in whole seconds; 0 is forever.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		if !ttl.given {
			return usage(errors.New("the time to live is missing; give --ttl, such as --ttl 30s"))
		}
		if verr := (hetero.SetOptions{TTL: ttl.Duration}).Validate(); verr != nil {
			return usage(verr)
		}
		pairs, err := keyArgs(args, a.Stdin, keysAlone)
		if err != nil {
			return err
		}
		return a.onKeys(ctx, "expire", pairs, f, func(c hetero.Client, keys []string) (hetero.Results, error) {
			return c.Expire(ctx, keys, ttl.Duration)
		})
	})
}
