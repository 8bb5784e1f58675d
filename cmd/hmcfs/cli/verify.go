package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

func (a *app) verifyVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [--json] FILE...",
		Short: "Compare files by checksum, also across nodes",
		Long: "Compare the SHA-256 checksums of each 1 MiB block of the FILEs with those of the first FILE, and\n" +
			"report which files differ, and where. Each node reads its own files; only checksums go over the\n" +
			"network. The FILEs must be on one mount, but may be on any of its devices and nodes.\n" +
			"\n" +
			"The exit code is 0 if all are equal, and 1 otherwise.",
		Example: "  hmcfs verify /mnt/hmc/cuda0/w /mnt/hmc/nodes/*/cuda0/w",
		Args:    arguments(1, 128, "1 to 128 FILEs"),
	}
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error { return a.verify(ctx, args, *asJSON) })
}

func (a *app) verify(ctx context.Context, names []string, asJSON bool) error {
	r := &rankFiles{names: names}
	defer r.close()
	for _, name := range names {
		c, f, err := findOf(name, r.client)
		if err != nil {
			return collectFault("verify", err)
		}
		r.client, r.files = c, append(r.files, f)
	}
	files := append([]*os.File(nil), r.files...)
	answer, err := r.client.Verify(ctx, files)
	if err != nil {
		return collectFault("verify", r.explain(err))
	}
	if asJSON {
		err = printJSON(a.Stdout, answer)
	} else {
		a.printVerify(names, answer)
	}
	if err == nil && !answer.Equal {
		err = &codeError{code: exitFailure, err: errSilent}
	}
	return err
}

func (a *app) printVerify(names []string, v adminapi.VerifyAnswer) {
	if v.Equal {
		are := "are"
		if len(names) == 1 {
			are = "is"
		}
		fmt.Fprintf(a.Stdout, "%s %s equal: %d bytes (%v)\n", several(len(names), "file"), are, uint64(v.Size), v.Size)
		return
	}
	for _, d := range v.Different {
		fmt.Fprintf(a.Stdout, "%s differs from %s: ", names[d.File], names[0])
		if d.Size != v.Size {
			fmt.Fprintf(a.Stdout, "it has %d bytes, not %d; ", uint64(d.Size), uint64(v.Size))
		}
		fmt.Fprintf(a.Stdout, "%s of %v, the first at byte %d (block %d)\n", several(d.Blocks, "block"), v.Block, d.Block*uint64(v.Block), d.Block)
	}
}
