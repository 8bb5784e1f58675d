package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/perf"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

func (a *app) perfVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "perf",
		Short: "Measure transfers between processes, and collectives",
		Long: "Measure latency and bandwidth of tagged messages, puts, gets, sends and receives between\n" +
			"two processes, on one machine or two: one runs `perf serve`, the other `perf run`. Both need\n" +
			"the same secret. Or measure collectives between the ranks of a job.",
		Args: arguments(0, 0, "serve, run or collective"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.perfServeVerb(), a.perfRunVerb(), a.perfCollectiveVerb())
	return cmd
}

// perfFlags are the flags of both sides.
type perfFlags struct {
	perf.Options

	transports []string
	secret     string
	socketDir  string
	chunk      string
}

func (f *perfFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.Memory, "memory", []string{string(perf.Host)},
		"Measure this memory: host, or a device such as sim:0,size=1GiB; may be given several times.")
	cmd.Flags().StringVar(&f.secret, "secret-file", "", "File with the secret that both sides share; serve creates it if it does not exist.")
	cmd.Flags().BoolVar(&f.Plain, "plain", false, "Don't encrypt traffic over TCP; set it on both sides. Without it rdma and ucx, which don't encrypt, are not used over TCP.")
	cmd.Flags().StringVar(&f.socketDir, "socket-dir", "", "Directory of the Unix socket hmc_ctrl_rank_0.sock, for two processes on one machine.")
	cmd.Flags().StringVar(&f.chunk, "chunk", "1MiB", "Payload of one frame; the smaller value of the two sides is used.")
	cmd.Flags().StringVar(&f.UCX.Transports, "ucx-tls", "", "Transports that UCX may use, as in UCX_TLS; the same on both sides. Default: all but its TCP.")
	cmd.Flags().BoolVar(&f.UCX.OneSided, "ucx-one-sided", false, "Let UCX do puts and gets itself even without RDMA; set it on both sides. A peer that is killed can then terminate this process.")
	cmd.Flags().DurationVar(&f.Timeout, "timeout", 30*time.Second, "How long to wait for the other side without progress.")
}

// options returns the options that both sides have.
func (f *perfFlags) options(a *app, secret []byte) (perf.Options, error) {
	chunk, err := devices.ParseSize(f.chunk)
	if err == nil && (chunk < wire.MinChunk || chunk > wire.MaxChunk) {
		err = fmt.Errorf("--chunk %s: use 4KiB to 64MiB", f.chunk)
	}
	if f.Timeout <= 0 {
		err = errors.Join(err, fmt.Errorf("--timeout %v: use more than 0, such as 30s", f.Timeout))
	}
	if err != nil {
		return perf.Options{}, usage(err)
	}
	o := f.Options
	o.Secret, o.Families, o.Chunk = secret, daemon.Families(host.Options{}, nil), chunk
	o.Progress = func(line string) { a.note("%s", line) }
	return o, nil
}

func (a *app) perfServeVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve --secret-file FILE [--listen ADDRESS] [--memory KIND] [--once]",
		Short: "Serve measurements of other processes",
		Long: "Serve processes that measure, one after the other, until interrupted. The addresses\n" +
			"at which they can connect are printed.",
		Args: arguments(0, 0, "no arguments"),
	}
	var f perfFlags
	f.add(cmd)
	cmd.Flags().StringArrayVar(&f.transports, "transport", nil, "Offer this transport: rdma, shm, ucx or tcp; may be given several times. Default: all. A peer that uses rdma or ucx is trusted with this process's memory.")
	var listen []string
	cmd.Flags().StringArrayVar(&listen, "listen", nil, "Address to listen on: HOST:PORT, [IPv6]:PORT or unix:PATH; may be given several times. Default: 127.0.0.1, any port.")
	once := cmd.Flags().Bool("once", false, "Exit when the first client has disconnected; fail if it disconnects before it is done.")
	return runs(cmd, func(ctx context.Context, _ []string) error {
		o := perf.ServeOptions{Transports: as[comm.Transport](f.transports), Once: *once}
		o.Listening = func(at control.Address) error {
			_, err := fmt.Fprintln(a.Stdout, at)
			return err
		}
		var err error
		o.Listen, err = f.listen(listen)
		if err = errors.Join(err, o.Validate()); err != nil {
			return usage(err)
		}
		secret, err := readSecret(f.secret, true)
		if err != nil {
			return err
		}
		if o.Options, err = f.options(a, secret); err != nil {
			return err
		}
		return perf.Serve(ctx, o)
	})
}

// listen returns the addresses on which a server listens.
func (f *perfFlags) listen(texts []string) ([]control.Address, error) {
	var all []control.Address
	var faults []error
	for _, text := range texts {
		at, err := control.ParseAddress(text)
		all, faults = append(all, at), append(faults, err)
	}
	if f.socketDir != "" {
		path, err := control.SocketPath(f.socketDir, 0)
		all, faults = append(all, control.Address{Network: control.Unix, Addr: path}), append(faults, err)
	}
	if len(all) == 0 {
		all = []control.Address{{Network: control.TCP, Addr: "127.0.0.1:0"}}
	}
	return all, errors.Join(faults...)
}

func (a *app) perfRunVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run --secret-file FILE [--json] [--csv FILE] [--memory KIND] [--transport NAME] ADDRESS...",
		Short: "Measure against a process that runs `perf serve`",
		Long: "Measure latency (medians and 99th percentiles) and bandwidth by size, for each ADDRESS\n" +
			"of one server and each transport. Every byte is verified. A GB is 1e9 bytes.\n\n" +
			"Each session reports which transport it uses, and why it uses none of the faster ones.\n" +
			"It is an error to name a transport that the two sides can't use.\n\n" +
			"With --socket-dir, the server's Unix socket in that directory replaces HOST:PORT, by HMC's\n" +
			"rule: if HOST is also --local-host, or the environment has CTRL_TRANSPORT=uds;\n" +
			"CTRL_TRANSPORT=tcp prevents it.",
		Args: arguments(1, -1, "at least one ADDRESS"),
	}
	var f perfFlags
	f.add(cmd)
	cmd.Flags().StringArrayVar(&f.transports, "transport", []string{string(perf.Auto)},
		"Measure this transport: rdma, shm, ucx, tcp, or auto, the fastest that both sides support; may be given several times.")
	cmd.Flags().IntVar(&f.Channels, "channels", 1, "Number of data connections over which large transfers are striped, 1 to 16.")
	m := measureFlags{perfFlags: &f}
	m.add(cmd)
	csvFile := cmd.Flags().String("csv", "", "Write a CSV file with the columns of HMC's benchmark.")
	asJSON := addJSON(cmd)
	return runs(cmd, func(ctx context.Context, args []string) error {
		o, err := m.runOptions(a, args)
		if err != nil {
			return err
		}
		report, err := perf.Run(ctx, o)
		if err != nil {
			return err
		}
		if *csvFile != "" {
			if err = writeTo(*csvFile, report.WriteCSV); err != nil {
				return err
			}
		}
		return answer(a.Stdout, *asJSON, &report, printPerfTable)
	})
}

// measureFlags select the measurements.
type measureFlags struct {
	*perfFlags

	run        perf.RunOptions
	local      string
	peerMemory []string
	sizes      string
	bytes      string
}

func (m *measureFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&m.local, "local-host", "127.0.0.1", "Name or address of this machine.")
	flags.StringArrayVar(&m.peerMemory, "peer-memory", nil,
		"Measure against this memory of the server, such as sim0; may be given several times. Default: the same as here.")
	flags.StringArrayVar(&m.run.Operations, "operation", perf.Operations(),
		"Measure this: tag, put, get, send, recv, or bounce, a put through host memory on both sides; may be given several times.")
	flags.StringVar(&m.sizes, "sizes", "8..1GiB", "Transfer sizes: a list such as 8,64KiB,1GiB, or a range such as 8..1GiB, which grows by a factor of eight, or 8..1GiB:2, by two.")
	flags.StringVar(&m.bytes, "bytes", "256MiB", "How much each row of a transfer moves, approximately.")
	flags.IntVar(&m.run.Iterations, "iterations", 0, "Number of transfers in each row, instead of --bytes.")
	flags.IntVar(&m.run.Rounds, "rounds", 1000, "Number of measurements of each latency.")
	flags.IntVar(&m.run.WarmUp, "warm-up", 20, "Number of iterations before each row that are not counted; for a transfer, at most a quarter of those that are.")
	flags.IntVar(&m.run.Depth, "depth", 1, "Number of transfers started together.")
}

// runOptions returns all options of a run.
func (m *measureFlags) runOptions(a *app, args []string) (perf.RunOptions, error) {
	o := m.run
	o.Transports, o.PeerMemory = as[comm.Transport](m.transports), as[devices.Name](m.peerMemory)
	faults := make([]error, 0, 8)
	for _, text := range args {
		at, err := m.peer(text, m.local, a.Getenv("CTRL_TRANSPORT"))
		o.Peers, faults = append(o.Peers, at), append(faults, err)
	}
	if m.Channels < 1 || m.Channels > wire.MaxChannels {
		faults = append(faults, fmt.Errorf("--channels %d: use 1 to %d", m.Channels, wire.MaxChannels))
	}
	sizes, err := perf.ParseSizes(m.sizes)
	faults = append(faults, err)
	bytes, err := devices.ParseSize(m.bytes)
	faults = append(faults, err)
	o.Sizes, o.Bytes, o.Memory = sizes, bytes, m.Memory
	if err = errors.Join(faults...); err != nil {
		return o, usage(err)
	}
	if err = o.Validate(); err != nil {
		return o, usage(err)
	}
	secret, err := readSecret(m.secret, false)
	if err != nil {
		return o, err
	}
	o.Options, err = m.options(a, secret)
	return o, err
}

// peer returns the address of a server, by HMC's rule if there is a directory of sockets.
func (f *perfFlags) peer(text, local, override string) (control.Address, error) {
	at, err := control.ParseAddress(text)
	if err != nil || at.Network == control.Unix || f.socketDir == "" {
		return at, err
	}
	host, _, err := net.SplitHostPort(at.Addr)
	if err != nil || control.ChooseNetwork(override, local, host) == control.TCP {
		return at, err
	}
	path, err := control.SocketPath(f.socketDir, 0)
	return control.Address{Network: control.Unix, Addr: path}, err
}

// writeTo creates a file with the output of write.
func writeTo(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func printPerfTable(w io.Writer, r *perf.Report) error {
	fmt.Fprintf(w, "%d channel(s), chunks of %v; GB/s are 1e9 bytes a second, by the median\n", r.Channels, r.Chunk)
	t := newTable(w, "MODE", "OP", "BY", "MEMORY", "SIZE", "COUNT", "DEPTH", "MEDIAN", "P99", "GB/s", "VERIFIED")
	for i := range r.Rows {
		row := &r.Rows[i]
		speed, verified := "", ""
		if row.GBs > 0 {
			speed = fmt.Sprintf("%.3f", row.GBs)
		}
		if row.Verified {
			verified = "yes"
		}
		t.row(row.Mode, row.Operation, row.Way(), row.Memories(), row.Bytes, row.Count, row.Depth,
			fmt.Sprintf("%.1f µs", row.MedianUS), fmt.Sprintf("%.1f µs", row.P99US), speed, verified)
	}
	return t.Flush()
}
