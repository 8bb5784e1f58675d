package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

func (a *app) nodesVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes [--json] [--forget NODE] [MOUNTPOINT]",
		Short: "List the nodes of a mount's cluster",
		Long: "List the nodes of a mount's cluster, this one first, as this node knows them, without contacting\n" +
			"any. An idle node has not been needed yet, or not recently. --json contains the full reason why a\n" +
			"node is unreachable.\n\n" +
			"A node that died or is cut off stays listed until it returns, so that its files and keys do not\n" +
			"count as removed; until then, a key that it may hold cannot be set. --forget removes a node that\n" +
			"will not return: with etcd from the cluster, with a fixed list from this node only, so run it on\n" +
			"each of the others. If the node returns after all, its keys are compared with those of the others;\n" +
			"docs/cluster.md describes which are kept.",
		Args: arguments(0, 1, "one MOUNTPOINT, or none"),
	}
	asJSON := addJSON(cmd)
	forget := cmd.Flags().String("forget", "", "Remove a node that will not return from the cluster.")
	return runs(cmd, func(ctx context.Context, args []string) error {
		m, c, err := a.daemonFor(ctx, args)
		if err != nil {
			return err
		}
		known, err := c.Cluster(ctx)
		if err == nil && *forget != "" {
			known, err = c.Forget(ctx, members.Name(*forget))
			if err != nil {
				return err
			}
		}
		if client.IsNotFound(err) {
			return fmt.Errorf("%s is not part of a cluster; see --node in hmcfs mount --help", m.MountPoint)
		}
		if err != nil {
			return err
		}
		return answer(a.Stdout, *asJSON, known, printNodes)
	})
}

func printNodes(w io.Writer, c adminapi.Cluster) error {
	t := newTable(w, "NODE", "ADDRESS", "STATE", "BY", "PROTECTION", "EPOCH", "DEVICES", "VERSION")
	nodeRow(t, members.Peer{Record: c.Self}, "this node")
	for _, n := range c.Nodes {
		nodeRow(t, n, nodeState(n))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if text := viewProblem(c.State); text != "" {
		fmt.Fprintf(w, "\n%s\n", text)
	}
	if text := conflictText(c); text != "" {
		fmt.Fprintf(w, "\n%s\n", text)
	}
	return nil
}

// nodeAddress returns the addresses that a node is listed with, and the host that it is
// connected from if that is a different one: any process that has the secret can use its
// name.
func nodeAddress(n members.Peer) string {
	listed := strings.Join(n.Addresses, " ")
	host, _, err := net.SplitHostPort(n.Remote)
	if err != nil {
		return listed
	}
	for _, at := range n.Addresses {
		if own, _, err := net.SplitHostPort(at); err == nil && own == host {
			return listed
		}
	}
	return fmt.Sprintf("%s, connected from %s", listed, host)
}

// conflictText describes the keys that two nodes had; empty for none.
func conflictText(c adminapi.Cluster) string {
	if c.Conflicts == 0 {
		return ""
	}
	lines := []string{fmt.Sprintf("%d keys were found on two nodes", c.Conflicts)}
	for _, one := range c.LastConflicts {
		what := fmt.Sprintf("node %s keeps it, and %s is a file without the key", one.Node, one.Path)
		switch {
		case one.Published:
			what = fmt.Sprintf("it is published here and on node %s", one.Node)
		case one.Kept:
			what = fmt.Sprintf("%s keeps it, not node %s", one.Path, one.Node)
		}
		lines = append(lines, "  "+shown(fmt.Sprintf("%s %s: %s", one.Time.Format(time.RFC3339), one.Key, what)))
	}
	return strings.Join(lines, "\n")
}

func nodeRow(t *table, n members.Peer, state string) {
	r := n.Record
	epoch := ""
	if r.Epoch != 0 {
		epoch = fmt.Sprint(uint64(r.Epoch))
	}
	t.row(r.Name, nodeAddress(n), state, n.Transport, n.Protection, epoch, deviceList(r.Devices), r.Version)
}

// deviceList formats devices as "host 4.0 GiB, ocl0 2.0 GiB".
func deviceList(all []members.Device) string {
	texts := mapped(all, func(d members.Device) string { return fmt.Sprintf("%s %v", d.Name, devices.Size(d.Total)) })
	return strings.Join(texts, ", ")
}

func nodeState(n members.Peer) string {
	switch {
	case n.Connected:
		return "connected"
	case n.Problem != "":
		return "unreachable: " + shortProblem(n.Problem)
	default:
		return "idle"
	}
}

// maxProblem bounds the characters of a problem in a table.
const maxProblem = 60

// shortProblem returns the end of a chain of errors, which is the cause: the rest says at
// which address, once for each, and is in the JSON.
func shortProblem(text string) string {
	last := strings.TrimSpace(text)
	last = last[strings.LastIndexByte(last, '\n')+1:]
	if at := strings.LastIndex(last, ": "); at >= 0 {
		last = last[at+2:]
	}
	if r := []rune(last); len(r) > maxProblem {
		last = string(r[:maxProblem-1]) + "…"
	}
	return last
}

// viewProblem describes a problem of the membership service.
func viewProblem(s members.State) string {
	switch {
	case !s.UnreachableSince.IsZero():
		text := fmt.Sprintf("%s unreachable since %s", s.Backend, s.UnreachableSince.Format(time.RFC3339))
		if s.Problem != "" {
			text += ": " + s.Problem
		}
		return text
	case s.Problem != "":
		return s.Backend + ": " + s.Problem
	case s.Unreadable > 0:
		return fmt.Sprintf("%s: %d records are not used; see the log", s.Backend, s.Unreadable)
	}
	return ""
}

// printCluster prints the part of `hmcfs status` about the cluster.
func printCluster(w io.Writer, c *adminapi.Cluster) {
	if c == nil {
		return
	}
	connected := 0
	for _, n := range c.Nodes {
		if n.Connected {
			connected++
		}
	}
	field(w, "node", fmt.Sprintf("%s of cluster %s, epoch %d, at %s", c.Self.Name, c.Name, c.Self.Epoch, strings.Join(c.Self.Addresses, " ")))
	by := "from a fixed list"
	if len(c.State.Endpoints) > 0 {
		by = "listed by " + c.State.Backend + " at " + strings.Join(c.State.Endpoints, " ")
	}
	if text := viewProblem(c.State); text != "" {
		by = text
	}
	field(w, "other nodes", fmt.Sprintf("%d, %d of them connected; %s", len(c.Nodes), connected, by))
	if c.Conflicts > 0 {
		field(w, "keys on two nodes", fmt.Sprintf("%d found since the mount; see hmcfs nodes", c.Conflicts))
	}
	t := c.Traffic
	field(w, "between nodes", fmt.Sprintf("%d requests sent, %d unanswered; %d answered; %v in, %v out",
		t.Questions, t.Failures, t.Answers, devices.Size(t.BytesIn), devices.Size(t.BytesOut)))
}
