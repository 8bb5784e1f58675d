package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/perf"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

func (a *app) perfVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "perf",
		Short: "Measure the communicator between two processes",
		Long: "Measure latency and bandwidth of tags, puts and gets between two processes, here or\n" +
			"on two machines: one serves, the other runs. Both need the same secret.",
		Args: arguments(0, 0, "serve or run"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.perfServeVerb(), a.perfRunVerb())
	return cmd
}

// perfFlags are those of both sides.
type perfFlags struct {
	memory    []string
	secret    string
	socketDir string
	channels  int
	chunk     string
}

func (f *perfFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.memory, "memory", []string{string(perf.Host)},
		"Measure this memory: host, or a device such as sim:0,size=1GiB; may be given several times.")
	cmd.Flags().StringVar(&f.secret, "secret-file", "", "The file with the secret that both sides share; serve makes one where it is missing.")
	cmd.Flags().StringVar(&f.socketDir, "socket-dir", "", "The directory of the Unix socket hmc_ctrl_rank_0.sock, for two processes of one machine.")
	cmd.Flags().StringVar(&f.chunk, "chunk", "1MiB", "The payload of one frame; the smaller one of both sides counts.")
}

// options are the parts that both sides have.
func (f *perfFlags) options(a *app, secret []byte) (perf.Options, error) {
	chunk, err := devices.ParseSize(f.chunk)
	if err == nil && (chunk < wire.MinChunk || chunk > wire.MaxChunk) {
		err = fmt.Errorf("--chunk %s: use 4KiB to 64MiB", f.chunk)
	}
	if err != nil {
		return perf.Options{}, usage(err)
	}
	return perf.Options{
		Secret: secret, Memory: f.memory, Families: daemon.Families("", nil), Channels: f.channels, Chunk: chunk,
		Progress: func(line string) { a.note("%s", line) },
	}, nil
}

func (a *app) perfServeVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve --secret-file FILE [--listen ADDRESS] [--memory KIND] [--once]",
		Short: "Serve a process that measures",
		Long:  "Serve processes that measure, one after the other, until interrupted. The addresses\nthat they may use are printed.",
		Args:  arguments(0, 0, "no argument"),
	}
	var f perfFlags
	f.add(cmd)
	var listen []string
	cmd.Flags().StringArrayVar(&listen, "listen", nil, "Listen here: HOST:PORT, [IPv6]:PORT or unix:PATH; may be given several times. Default: 127.0.0.1, any port.")
	once := cmd.Flags().Bool("once", false, "End when the first runner has gone.")
	cmd.RunE = running(func(ctx context.Context, _ []string) error {
		at, err := f.listen(listen)
		if err != nil {
			return usage(err)
		}
		secret, err := readSecret(f.secret, true)
		if err != nil {
			return err
		}
		o, err := f.options(a, secret)
		if err != nil {
			return err
		}
		return perf.Serve(ctx, perf.ServeOptions{
			Options: o, Listen: at, Once: *once,
			Listening: func(at control.Address) error {
				_, err := fmt.Fprintln(a.out(), at)
				return err
			},
		})
	})
	return cmd
}

// listen is where a server listens.
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
		Use:   "run --secret-file FILE [--json] [--csv FILE] [--memory KIND] ADDRESS...",
		Short: "Measure against a process that serves",
		Long: "Measure latency (medians and 99th percentiles) and bandwidth by size, by each ADDRESS\n" +
			"of one server. Every byte is verified. A GB is 1e9 bytes.\n\n" +
			"With --socket-dir a HOST:PORT becomes the server's Unix socket there, by HMC's rule: if\n" +
			"HOST is also --local-host, or the environment has CTRL_TRANSPORT=uds; CTRL_TRANSPORT=tcp\n" +
			"prevents it.",
		Args: arguments(1, -1, "one or more ADDRESS"),
	}
	var f perfFlags
	f.add(cmd)
	cmd.Flags().IntVar(&f.channels, "channels", 1, "How many data connections large transfers are striped over, 1 to 16.")
	least := cmd.Flags().String("min-size", "8", "The smallest size of a transfer.")
	most := cmd.Flags().String("max-size", "64MiB", "The largest size of a transfer.")
	total := cmd.Flags().String("bytes", "256MiB", "About how much each row moves.")
	rounds := cmd.Flags().Int("rounds", 1000, "How often a latency is taken.")
	csvFile := cmd.Flags().String("csv", "", "Write this file with the columns of HMC's benchmark.")
	local := cmd.Flags().String("local-host", "127.0.0.1", "The name or address of this machine.")
	asJSON := addJSON(cmd)
	cmd.RunE = running(func(ctx context.Context, args []string) error {
		o, err := f.runOptions(a, args, *local)
		if err != nil {
			return err
		}
		var faults [3]error
		o.MinSize, faults[0] = devices.ParseSize(*least)
		o.MaxSize, faults[1] = devices.ParseSize(*most)
		o.Bytes, faults[2] = devices.ParseSize(*total)
		o.Rounds = *rounds
		if err = errors.Join(append(faults[:], o.Validate())...); err != nil {
			return usage(err)
		}
		report, err := perf.Run(ctx, o)
		if err != nil {
			return err
		}
		return a.printPerf(&report, *asJSON, *csvFile)
	})
	return cmd
}

// runOptions resolves the addresses and reads the secret.
func (f *perfFlags) runOptions(a *app, args []string, local string) (perf.RunOptions, error) {
	var peers []control.Address
	var faults []error
	for _, text := range args {
		at, err := f.peer(text, local, a.Getenv("CTRL_TRANSPORT"))
		peers, faults = append(peers, at), append(faults, err)
	}
	if f.channels < 1 || f.channels > wire.MaxChannels {
		faults = append(faults, fmt.Errorf("--channels %d: use 1 to %d", f.channels, wire.MaxChannels))
	}
	if err := errors.Join(faults...); err != nil {
		return perf.RunOptions{}, usage(err)
	}
	secret, err := readSecret(f.secret, false)
	if err != nil {
		return perf.RunOptions{}, err
	}
	o, err := f.options(a, secret)
	return perf.RunOptions{Options: o, Peers: peers}, err
}

// peer is where a server is, by HMC's rule where there is a directory of
// sockets.
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

// readSecret reads the secret, or makes one where the file is missing.
func readSecret(path string, create bool) ([]byte, error) {
	if path == "" {
		return nil, usage(errors.New("--secret-file is missing: both sides need the same secret"))
	}
	text, err := os.ReadFile(path)
	if create && errors.Is(err, fs.ErrNotExist) {
		return makeSecret(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the secret: %w", err)
	}
	secret := []byte(strings.TrimSpace(string(text)))
	if len(secret) < 16 {
		return nil, usage(fmt.Errorf("the secret in %s has %d bytes; use 16 or more", path, len(secret)))
	}
	return secret, nil
}

// makeSecret writes a new secret, whole or not at all, for the owner's eyes.
func makeSecret(path string) ([]byte, error) {
	var p [32]byte
	// It never fails: the runtime ends the process where the kernel has no
	// random bytes.
	_, _ = rand.Read(p[:])
	secret := hex.AppendEncode(nil, p[:])
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a secret: %w", err)
	}
	_, err = fmt.Fprintf(f, "%s\n", secret)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return nil, fmt.Errorf("make a secret: %w", err)
	}
	return secret, nil
}

// printPerf writes the report, and the file for spreadsheets.
func (a *app) printPerf(r *perf.Report, asJSON bool, csvFile string) error {
	if csvFile != "" {
		f, err := os.Create(csvFile)
		if err != nil {
			return err
		}
		if err := errors.Join(r.WriteCSV(f), f.Close()); err != nil {
			return err
		}
	}
	if asJSON {
		return printJSON(a.out(), r)
	}
	return printPerfTable(a.out(), r)
}

func printPerfTable(w io.Writer, r *perf.Report) error {
	fmt.Fprintf(w, "%d channel(s), chunks of %v; GB/s are 1e9 bytes a second, by the median\n", r.Channels, r.Chunk)
	t := newTable(w, "MODE", "OP", "TRANSPORT", "MEMORY", "SIZE", "COUNT", "MEDIAN", "P99", "GB/s", "VERIFIED")
	for _, row := range r.Rows {
		speed, verified := "", ""
		if row.GBs > 0 {
			speed = fmt.Sprintf("%.3f", row.GBs)
		}
		if row.Verified {
			verified = "yes"
		}
		t.row(row.Mode, row.Operation, row.Transport, row.Memory, row.Bytes, row.Count,
			fmt.Sprintf("%.1f µs", row.MedianUS), fmt.Sprintf("%.1f µs", row.P99US), speed, verified)
	}
	return t.Flush()
}
