package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

// existRow is one key of `hmcfs exist --json`.
type existRow struct {
	Key    string `json:"key"`
	Exists bool   `json:"exists"`
}

func (a keyVerbs) existVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exist [--json] KEY...",
		Short: "Test whether keys exist",
		Long: "Print each key, with true if it names an object whose bytes are available and false if not. The\n" +
			"exit code is 1 if one is false.",
		Annotations: withTopic(topicKeys),
		Example:     "  hmcfs exist w0 w1\n  ls weights | hmcfs exist -",
		Args:        arguments(1, -1, "at least one KEY"),
	}
	f := addKeyFlags(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		return a.exist(ctx, args, f)
	})
}

func (a keyVerbs) exist(ctx context.Context, args []string, f *keyFlags) error {
	pairs, err := keyArgs(args, a.Stdin, keysAlone)
	if err != nil {
		return err
	}
	c, _, err := a.openKeysOf(ctx, f, nil)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // it holds nothing
	keys := keysOf(pairs)
	there, err := c.Exist(ctx, keys)
	if err != nil {
		return err
	}
	rows, all := make([]existRow, len(keys)), true
	for i, key := range keys {
		rows[i] = existRow{Key: key, Exists: there[i]}
		all = all && there[i]
	}
	if *f.asJSON {
		err = printJSON(a.Stdout, rows)
	} else {
		for _, row := range rows {
			fmt.Fprintf(a.Stdout, "%s %v\n", row.Key, row.Exists)
		}
	}
	if err == nil && !all {
		err = &codeError{code: exitFailure, err: errSilent}
	}
	return err
}
