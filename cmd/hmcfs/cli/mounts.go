package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

// mountRow is one mount of `hmcfs mounts --json`.
type mountRow struct {
	MountPoint string `json:"mount_point"`
	// Kind is mount, or serve for a served directory.
	Kind string `json:"kind"`
	UID  int    `json:"uid"`
	// State is ok, dead, "not answering", or forbidden: the daemon tells this user nothing.
	State string `json:"state"`
	// Fault is the reason for a state other than ok.
	Fault   string         `json:"error,omitempty"`
	Version string         `json:"version,omitempty"`
	PID     int            `json:"pid,omitempty"`
	Node    string         `json:"node,omitempty"`
	Devices []devices.Name `json:"devices"`
	Total   devices.Size   `json:"total"`
	Used    devices.Size   `json:"used"`
}

func (a *app) mountsVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mounts [--json]",
		Short: "List the mounts of this machine",
		Long: "List all hmcfs mounts, and the directories of hmcfs serve that belong to this user. Commands that are\n" +
			"not given one use that of their paths, that of $HMCFS_MOUNT, that of the current directory, or the only one.",
		Args: arguments(0, 0, "no arguments"),
	}
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, _ []string) error { return a.listMounts(ctx, *asJSON) })
}

func (a *app) listMounts(ctx context.Context, asJSON bool) error {
	all, err := a.mounts()
	if err != nil {
		return err
	}
	rows := make([]mountRow, len(all))
	var asking sync.WaitGroup
	for i, m := range all {
		asking.Go(func() { rows[i] = a.mountRow(ctx, m) })
	}
	asking.Wait()
	return answer(a.Stdout, asJSON, rows, printMounts)
}

// mountRow asks the daemon of a mount.
func (a *app) mountRow(ctx context.Context, m place.Mount) mountRow {
	row := mountRow{MountPoint: m.MountPoint, Kind: "mount", UID: m.Owner(), State: "ok", Devices: []devices.Name{}}
	if m.IsServed() {
		row.Kind = "serve"
	}
	c, err := a.connect(ctx, m)
	var st adminapi.Status
	if err == nil {
		st, err = c.Status(ctx, false)
	}
	if err != nil {
		row.State, row.Fault = stateOf(err), err.Error()
		return row
	}
	row.Version, row.PID = st.Version, st.PID
	if st.Cluster != nil {
		row.Node = string(st.Cluster.Self.Name)
	}
	for _, d := range st.Devices {
		row.Devices, row.Total, row.Used = append(row.Devices, d.Name), row.Total+d.Total, row.Used+d.Used
	}
	return row
}

// stateOf returns the state of a daemon that did not answer a question.
func stateOf(err error) string {
	_, unresponsive := errors.AsType[*unresponsiveError](err)
	switch {
	case client.IsForbidden(err):
		return "forbidden"
	case errors.Is(err, client.ErrNoDaemon):
		return "dead"
	case unresponsive:
		return "not answering"
	}
	return "unknown"
}

func printMounts(w io.Writer, rows []mountRow) error {
	t := newTable(w, "MOUNTPOINT", "KIND", "USER", "STATE", "NODE", "USED", "TOTAL", "DEVICES")
	for _, r := range rows {
		var used, total any = r.Used, r.Total
		if r.State != "ok" {
			used, total = "", ""
		}
		t.row(r.MountPoint, r.Kind, r.UID, r.State, r.Node, used, total, strings.Join(as[string](r.Devices), " "))
	}
	return t.Flush()
}
