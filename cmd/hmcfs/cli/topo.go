package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/transport/topology"
)

type topoFlags struct {
	file  string
	mount string
	size  string
	json  bool
}

func (f *topoFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "file", "", "Read a topology.json, a rank table (1.0, 1.2, 2.0) or a topology file (2.0) instead of looking at this machine.")
	cmd.Flags().StringVar(&f.mount, "mount", "", "Show what this mount knows, including the devices of its other nodes. Default: the devices of this machine.")
	cmd.Flags().BoolVar(&f.json, "json", false, "Print JSON. Fields are only ever added.")
}

func (f *topoFlags) addSize(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.size, "size", "1MiB", "Transfer size, which decides between routes of low latency and routes of high bandwidth.")
}

// graph returns the topology selected by the flags.
func (f *topoFlags) graph(ctx context.Context, a *app) (*topology.Graph, error) {
	switch {
	case f.file != "" && f.mount != "":
		return nil, usage(errors.New("--file and --mount: use one of them"))
	case f.file != "":
		return daemon.ReadTopology(f.file)
	case f.mount != "":
		m, err := a.findMount(f.mount)
		if err != nil {
			return nil, err
		}
		return daemon.ReadTopology(filepath.Join(m.MountPoint, ".hmcfs", "topology.json"))
	}
	return a.discoverTopology(ctx)
}

// discoverTopology returns the topology of this machine, without opening a device.
func (a *app) discoverTopology(ctx context.Context) (*topology.Graph, error) {
	reg := daemon.Families(host.Options{}, nil)
	var infos []devices.Info
	for _, driver := range reg.Drivers() {
		found, _ := driver.Discover(ctx) // hmcfs devices shows why there is none
		for _, f := range found {
			infos = append(infos, f.Info)
		}
	}
	pairs, problems := daemon.Pairs(ctx, reg, infos)
	for _, err := range problems {
		a.note("cannot determine which cards can reach each other: %v", err)
	}
	return topology.Discover(topology.Options{Devices: infos, Peers: pairs})
}

func (f *topoFlags) sized(ctx context.Context, a *app) (*topology.Graph, uint64, error) {
	n, err := devices.ParseSize(f.size)
	if err != nil {
		return nil, 0, usage(fmt.Errorf("--size %s: %w", f.size, err))
	}
	g, err := f.graph(ctx, a)
	return g, uint64(n), err
}

func (a *app) topoVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "topo [show] [--json] [--svg FILE] [--file FILE | --mount MOUNTPOINT]",
		Example: "  hmcfs topo --mount /mnt/hmc\n" +
			"  hmcfs topo --file rank_table.json --svg ranks.svg",
		Short: "Show how devices, network cards and NUMA nodes are connected",
		Long: "Show how devices are connected: those of this machine, of a mount with its other nodes, or of\n" +
			"a file, which is a topology.json, or a rank table or topology file of HCCL. Bandwidths with ~\n" +
			"are typical of that kind of link; the others come from the kernel or the file.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownVerb(cmd, args[0])
		},
	}
	a.topoShow(cmd)
	show := a.topoShow(&cobra.Command{
		Use:   "show [--json] [--svg FILE] [--file FILE | --mount MOUNTPOINT]",
		Short: "Same as hmcfs topo",
		Args:  arguments(0, 0, "no arguments"),
	})
	for _, verb := range []*cobra.Command{show, a.topoRouteVerb(), a.topoRingVerb()} {
		verb.DisableFlagsInUseLine = true
		cmd.AddCommand(verb)
	}
	return cmd
}

// topoShow makes a command show the topology, and returns it.
func (a *app) topoShow(cmd *cobra.Command) *cobra.Command {
	var f topoFlags
	f.add(cmd)
	picture := cmd.Flags().String("svg", "", "Draw a picture into this file; - is standard output.")
	return runs(cmd, func(ctx context.Context, _ []string) error {
		g, err := f.graph(ctx, a)
		if err != nil {
			return err
		}
		if *picture != "" {
			if err = a.drawTopology(g, *picture); err != nil || !f.json {
				return err
			}
		}
		if f.json {
			text, err := g.Encode()
			if err == nil {
				_, err = a.Stdout.Write(text)
			}
			return err
		}
		return printTopology(a.Stdout, g)
	})
}

// drawTopology writes a picture, whole or not at all.
func (a *app) drawTopology(g *topology.Graph, path string) error {
	var b strings.Builder
	if err := g.SVG(&b); err != nil {
		return err
	}
	if path == standardStream {
		_, err := io.WriteString(a.Stdout, b.String())
		return err
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil { //nolint:gosec // the picture is not secret; the umask restricts it
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

func printTopology(w io.Writer, g *topology.Graph) error {
	t := newTable(w, "DEVICE", "KIND", "SERVER", "RANK", "NUMA", "NIC", "PCI", "WHAT")
	for i := range g.Devices {
		d := &g.Devices[i]
		rank := ""
		if d.Rank != nil {
			rank = fmt.Sprint(*d.Rank)
		}
		what := strings.Join(append([]string{d.Model}, d.Net...), " ")
		t.row(d.ID, d.Kind, d.Server, rank, numaText(d.NUMA), d.NIC, d.PCI, strings.TrimSpace(what))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	t = newTable(w, "\nFROM", "TO", "CLASS", "GB/s", "µs", "BY")
	for i := range g.Links {
		l := &g.Links[i]
		t.row(l.A, l.B, l.Class, figure(l.Bandwidth, l.Assumed), figure(l.Latency, l.Assumed), l.Transport)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	fmt.Fprintf(w, "\nhash %s\n", g.Hash())
	return nil
}

func figure(v float64, assumed bool) string {
	text := fmt.Sprintf("%.3g", v)
	if assumed {
		return "~" + text
	}
	return text
}

func (a *app) topoRouteVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "route FROM TO [--size SIZE] [--json] [--file FILE | --mount MOUNTPOINT]",
		Example: "  hmcfs topo route cuda0 cuda3 --size 64MiB\n" +
			"  hmcfs topo route host b/cuda0 --mount /mnt/hmc",
		Short: "Show the fastest route between two devices",
		Long: "Show the fastest route for a transfer of some size, by the latencies and bandwidths of the\n" +
			"links. A route through more devices is chosen only if it is clearly faster.",
		Args: arguments(2, 2, "two devices"),
	}
	var f topoFlags
	f.add(cmd)
	f.addSize(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		g, size, err := f.sized(ctx, a)
		if err != nil {
			return err
		}
		r, err := g.Route(deviceID(g, args[0]), deviceID(g, args[1]), size)
		switch {
		case errors.Is(err, topology.ErrUnknown):
			return usage(err)
		case err != nil:
			return err
		}
		return answer(a.Stdout, f.json, r, printRoute)
	})
}

// deviceID returns the device that the user names, by its ID or by a specification.
func deviceID(g *topology.Graph, text string) topology.ID {
	if _, err := g.Device(topology.ID(text)); err != nil {
		return topology.ID(devices.NameOf(text))
	}
	return topology.ID(text)
}

func printRoute(w io.Writer, r *topology.Route) error {
	fmt.Fprintln(w, r)
	if len(r.Hops) > 0 {
		t := newTable(w, "TO", "CLASS", "GB/s", "µs", "BY")
		for _, h := range r.Hops {
			t.row(h.To, h.Link.Class, figure(h.Link.Bandwidth, h.Link.Assumed), figure(h.Link.Latency, h.Link.Assumed), h.Link.Transport)
		}
		if err := t.Flush(); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	fmt.Fprintf(w, "%v in about %v, %s\n", devices.Size(r.Size), r.Time.Round(10*time.Nanosecond), rate(r.Size, r.Seconds))
	return nil
}

// topoRing is the output of `topo ring --json`.
type topoRing struct {
	Ring  []topology.ID `json:"ring"`
	Order []int         `json:"order"`
	Hash  string        `json:"hash"`
}

func (a *app) topoRingVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ring [DEVICE…] [--size SIZE] [--json] [--file FILE | --mount MOUNTPOINT]",
		Example: "  hmcfs topo ring cuda0 cuda1 cuda2 cuda3",
		Short:   "Show the order in which a ring uses the fast links",
		Long: "Show the order in which a ring of ranks passes through devices, with one rank on each device\n" +
			"named. Without names, use the ranks of a rank table, or else all accelerators.",
		Args: arguments(0, -1, "devices"),
	}
	var f topoFlags
	f.add(cmd)
	f.addSize(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		g, size, err := f.sized(ctx, a)
		if err != nil {
			return err
		}
		places, err := ringPlaces(g, args)
		if err != nil {
			return err
		}
		order, err := g.Ring(places, size)
		if errors.Is(err, topology.ErrUnknown) {
			return usage(err)
		}
		if err != nil {
			return err
		}
		out := topoRing{Ring: []topology.ID{}, Order: order, Hash: g.Hash()}
		texts := make([]string, len(order))
		for i, r := range order {
			out.Ring = append(out.Ring, places[r])
			texts[i] = string(places[r])
		}
		if f.json {
			return printJSON(a.Stdout, out)
		}
		_, err = fmt.Fprintln(a.Stdout, strings.Join(texts, " → "))
		return err
	})
}

func ringPlaces(g *topology.Graph, named []string) ([]topology.ID, error) {
	if len(named) > 0 {
		return mapped(named, func(text string) topology.ID { return deviceID(g, text) }), nil
	}
	places, err := g.Ranks()
	if err != nil || len(places) > 0 {
		return places, err
	}
	for i := range g.Devices {
		if g.Devices[i].Kind == topology.Accelerator {
			places = append(places, g.Devices[i].ID)
		}
	}
	if len(places) == 0 {
		return nil, usage(errors.New("no accelerator found; name the devices of the ring, such as host"))
	}
	return places, nil
}
