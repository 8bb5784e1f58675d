package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

func (a *app) statusVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [--json] [MOUNTPOINT]",
		Short: "Show the state of a mount: devices, transfers and their paths",
		Long: "Show the devices of a mount, the bytes moved and the paths that they took. Without MOUNTPOINT, and with\n" +
			"several mounts to choose from, list these as hmcfs mounts does.",
		Args: arguments(0, 1, "one MOUNTPOINT, or none"),
	}
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		_, c, err := a.daemonFor(ctx, args)
		if _, several := errors.AsType[*severalMountsError](err); several {
			return a.listMounts(ctx, *asJSON)
		}
		if err != nil {
			return err
		}
		st, err := c.Status(ctx, true)
		if err != nil {
			return err
		}
		return answer(a.Stdout, *asJSON, st, printStatus)
	})
}

func printStatus(w io.Writer, st adminapi.Status) error {
	if st.Served {
		field(w, "served at", st.MountPoint+", without a mount")
	} else {
		field(w, "mount point", st.MountPoint)
	}
	field(w, "version", st.Version)
	field(w, "process", fmt.Sprintf("%d of user %d, up %s", st.PID, st.UID,
		(time.Duration(st.UptimeSeconds)*time.Second).String()))
	if !st.Served {
		field(w, "passthrough", passthroughText(st.Passthrough))
	}
	field(w, "access", accessText(st))
	field(w, map[bool]string{false: "at unmount", true: "at its end"}[st.Served], map[bool]string{true: "keeps the host tier and the records", false: "frees everything"}[st.Keep])
	field(w, "state", st.StateDir)
	field(w, "runtime", st.RuntimeDir)
	field(w, "socket", st.Socket)
	fieldIf(w, "log", st.LogFile)
	if st.Holder != nil {
		field(w, "holder", holderText(*st.Holder))
	}
	if c := st.Continued; c != nil {
		field(w, "continued", fmt.Sprintf("%d files of device memory of an earlier daemon, %v; %v that no file owned was freed", c.Objects, c.Bytes, c.Freed))
	}
	fieldIf(w, "metrics at", st.Metrics)
	fieldIf(w, "page at", st.HTTP)
	field(w, "daemon memory", memoryText(st))
	for _, d := range st.Devices {
		if d.Aside > 0 {
			field(w, "set aside", fmt.Sprintf("%d files of %s without a record, %v; see hmcfs fsck %s", d.Aside, d.Name, d.AsideUsed, st.MountPoint))
		}
	}
	printCluster(w, st.Cluster)
	fmt.Fprintln(w)
	t := newTable(w, "DEVICE", "MODEL", "TOTAL", "USED", "FREE", "OBJECTS", "BOUND", "LOST")
	for _, d := range st.Devices {
		t.row(d.Name, d.Model, d.Total, d.Used, d.Free, optional(d.Objects), optional(d.Bound), optional(d.Lost))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if len(st.Paths) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t = newTable(w, "PATH", "DEVICE", "OPERATIONS", "BYTES", "ERRORS", "RATE")
	for _, p := range st.Paths {
		t.row(p.Path, p.Device, p.Operations, devices.Size(p.Bytes), p.Errors, rate(p.Bytes, p.Seconds))
	}
	return t.Flush()
}

func holderText(h adminapi.Holder) string {
	if h.PID == 0 {
		return "has ended; the next death of the daemon ends the mount"
	}
	text := fmt.Sprintf("process %d keeps the mount if the daemon dies", h.PID)
	if h.Deaths > 0 {
		text += fmt.Sprintf("; deaths so far: %d, the last at %s", h.Deaths, h.LastDeath.Format(time.DateTime))
	}
	return text
}

// memoryText describes the daemon's memory, including which part of it belongs to devices,
// and so is not overhead.
func memoryText(st adminapi.Status) string {
	m := st.Memory
	text := fmt.Sprintf("%v resident", m.Resident)
	var names []string
	for _, d := range st.Devices {
		if d.InDaemon && d.Held > 0 {
			names = append(names, string(d.Name))
		}
	}
	if len(names) > 0 && m.Devices > 0 {
		text += fmt.Sprintf(" (%v of it is the memory of %s)", m.Devices, strings.Join(names, ", "))
	}
	if m.Registered > 0 {
		text += fmt.Sprintf(" (%v of it is registered files of the host tier)", m.Registered)
	}
	return text + fmt.Sprintf(", %v heap, %v pinned, %d goroutines, %d descriptors",
		m.Heap, m.Pinned, m.Goroutines, m.Files)
}

func passthroughText(p adminapi.Passthrough) string {
	switch {
	case p.On:
		return "on: the kernel serves host files directly"
	case p.Reason != "":
		return "off: " + p.Reason
	default:
		return "off"
	}
}

func accessText(st adminapi.Status) string {
	who, how := "the mounting user only", "read and write"
	if st.AllowOther {
		who = "all users, subject to file modes"
	}
	if st.ReadOnly {
		how = "read-only"
	}
	return who + ", " + how
}

func optional(n *int) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}
