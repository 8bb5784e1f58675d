package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

func (a watchVerbs) pageVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "page [--json] [MOUNTPOINT]",
		Short: "Print the address of the page that shows a mount",
		Long: "Print the address, with its token, of the page of a mount with --http. A browser that opens it shows\n" +
			"devices, files, keys, sessions, nodes and events, and can change nothing. The token is valid until\n" +
			"the daemon ends; whoever has it sees the names of all files.",
		Example: "  xdg-open \"$(hmcfs page)\"\n  ssh -L 7171:127.0.0.1:7171 gpu-07    # then open the address here",
		Args:    arguments(0, 1, "one MOUNTPOINT, or none"),
	}
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		m, c, err := a.daemonFor(ctx, args)
		if err != nil {
			return err
		}
		p, err := c.Page(ctx)
		if client.IsNotFound(err) {
			return fmt.Errorf("%s serves no page; mount it with --http ADDRESS, such as --http :7171", m.MountPoint)
		}
		if err != nil {
			return err
		}
		return answer(a.Stdout, *asJSON, p, func(w io.Writer, p adminapi.Page) error {
			_, err := fmt.Fprintln(w, p.URL)
			return err
		})
	})
}
