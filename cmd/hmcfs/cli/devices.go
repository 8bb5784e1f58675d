package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
)

// familyRow is one family of `hmcfs devices --json`.
type familyRow struct {
	Family  devices.Family `json:"family"`
	Devices []deviceRow    `json:"devices"`
	// Reason explains why there is none.
	Reason string `json:"reason,omitempty"`
}

type deviceRow struct {
	Name  devices.Name `json:"name"`
	Spec  string       `json:"spec"`
	Model string       `json:"model"`
	Total devices.Size `json:"total"`
	Free  devices.Size `json:"free"`
	PCI   string       `json:"pci,omitempty"`
	NUMA  int          `json:"numa"`
}

func (a *app) devicesVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "devices [--json]",
		Short: "List the devices of this machine",
		Long:  "List the devices of every family, and the reason for a family that has none.",
		Args:  arguments(0, 0, "no arguments"),
	}
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, _ []string) error {
		rows := discover(ctx, daemon.Families(host.Options{}, nil))
		return answer(a.Stdout, *asJSON, rows, printDevices)
	})
}

func discover(ctx context.Context, reg *devices.Registry) []familyRow {
	var rows []familyRow
	for _, driver := range reg.Drivers() {
		row := familyRow{Family: driver.Family(), Devices: []deviceRow{}}
		found, err := driver.Discover(ctx)
		switch {
		case err != nil:
			row.Reason = strings.ReplaceAll(err.Error(), "\n", "; ")
		case len(found) == 0:
			row.Reason = "none found"
		}
		for _, f := range found {
			row.Devices = append(row.Devices, deviceRow{
				Name: f.Info.Name, Spec: specOf(f.Info), Model: f.Info.Model,
				Total: f.Usage.Total, Free: f.Usage.Free, PCI: f.Info.PCI, NUMA: f.Info.NUMA,
			})
		}
		rows = append(rows, row)
	}
	return rows
}

// specOf returns the specification of a device for --device. There is only one host device.
func specOf(i devices.Info) string {
	if i.Family == host.Family {
		return string(i.Family)
	}
	return fmt.Sprintf("%s:%d", i.Family, i.Ordinal)
}

func printDevices(w io.Writer, rows []familyRow) error {
	t := newTable(w, "FAMILY", "DEVICE", "SPEC", "MODEL", "TOTAL", "FREE", "PCI", "NUMA")
	for _, r := range rows {
		for _, d := range r.Devices {
			t.row(r.Family, d.Name, d.Spec, d.Model, d.Total, d.Free, d.PCI, numaText(d.NUMA))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	// Reasons are long: in the table of devices they would push the sizes off the screen.
	none := newTable(w, "\nFAMILY", "NO DEVICES, BECAUSE")
	for _, r := range rows {
		if len(r.Devices) == 0 {
			none.row(r.Family, r.Reason)
		}
	}
	return none.Flush()
}
