package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
)

func (a *app) benchVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench [--json] [--device DEVICE] [--size SIZE] [MOUNTPOINT]",
		Short: "Benchmark a mount, and tmpfs for comparison",
		Long: "Measure every device directory of a mount, and tmpfs in the same run. Each result is the\n" +
			"median of five measurements. All files that are written are removed.",
		Args: arguments(0, 1, "one MOUNTPOINT, or none"),
	}
	var o bench.Options
	cmd.Flags().StringArrayVar(&o.Devices, "device", nil, "Measure this device; may be given several times. Default: all.")
	size := cmd.Flags().String("size", "256MiB", "Size of the test files.")
	cmd.Flags().StringVar(&o.Baseline, "baseline", "/dev/shm", "Directory on a tmpfs to compare with.")
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		n, err := devices.ParseSize(*size)
		if err != nil {
			return usage(err)
		}
		m, err := a.mountFor(strings.Join(args, ""))
		if err != nil {
			return err
		}
		o.Devices = mapped(o.Devices, func(text string) string { return string(devices.NameOf(text)) })
		o.MountPoint, o.Size, o.Progress = m.MountPoint, n, func(line string) { a.note("%s", line) }
		report, err := bench.Run(ctx, o)
		if err != nil {
			return err
		}
		return answer(a.Stdout, *asJSON, &report, func(w io.Writer, r *bench.Report) error { return r.Print(w) })
	})
}
