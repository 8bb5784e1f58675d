package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
)

func (a *app) benchVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench [--json] [--device NAME] [--size SIZE] MOUNTPOINT",
		Short: "Measure a mount, and tmpfs for comparison",
		Long: "Measure each device directory of a mount, and tmpfs in the same run: medians of five.\n" +
			"Everything that is written is removed.",
		Args: arguments(1, 1, "one MOUNTPOINT"),
	}
	var names []string
	cmd.Flags().StringArrayVar(&names, "device", nil, "Measure this device; may be given several times. Default: all.")
	size := cmd.Flags().String("size", "256MiB", "How large the files are.")
	baseline := cmd.Flags().String("baseline", "/dev/shm", "A directory on tmpfs to compare with.")
	asJSON := addJSON(cmd)
	cmd.RunE = running(func(ctx context.Context, args []string) error {
		n, err := devices.ParseSize(*size)
		if err != nil {
			return usage(err)
		}
		m, err := findMount(args[0])
		if err != nil {
			return err
		}
		report, err := bench.Run(ctx, bench.Options{
			MountPoint: m.MountPoint, Devices: names, Size: n, Baseline: *baseline,
			Progress: func(line string) { a.note("%s", line) },
		})
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(a.out(), report)
		}
		return report.Print(a.out())
	})
	return cmd
}
