package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// duel runs a program's server and then its client, and returns the client's output. Both
// commands get the port.
func (s *spot) duel(ctx context.Context, server, client []string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if err := installed(server[0]); err != nil {
		return "", err
	}
	port, err := freePort(ctx)
	if err != nil {
		return "", err
	}
	text := strconv.Itoa(port)
	serve := s.within(s.serve(ctx, server[0], append(server[1:len(server):len(server)], "-p", text)...))
	if err := serve.Start(); err != nil {
		return "", err
	}
	defer func() {
		_ = serve.Process.Kill()
		_ = serve.Wait() // it has finished, or was killed
	}()
	if err := listening(ctx, serve.Process.Pid, port); err != nil {
		return "", fmt.Errorf("%s: %w", server[0], err)
	}
	return measure.Output(s.within(s.run(ctx, client[0], append(client[1:len(client):len(client)], "-p", text)...)))
}

// freePort returns an unused port.
func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(fmt.Errorf("%v is no TCP address", l.Addr()), l.Close())
	}
	return at.Port, l.Close()
}

// listening waits until a process's network namespace has a listener on a port. Connecting is
// not possible, since the server accepts only one client.
func listening(ctx context.Context, pid, port int) error {
	const state = " 0A " // TCP_LISTEN
	want := fmt.Sprintf(":%04X ", port)
	for {
		for _, table := range []string{"tcp", "tcp6"} {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(data)) {
				if strings.Contains(line, want) && strings.Contains(line, state) {
					return nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("does not listen on port %d: %w", port, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// iperf returns a side of bandwidth rows: one stream of iperf3, in bytes per second as
// received, with the better of two sizes of its writes.
func (p *peers) iperf(s *spot) side {
	return side{Name: "iperf3", Run: func(ctx context.Context) (float64, error) {
		var best float64
		for _, length := range []string{"128K", "1M"} {
			out, err := s.duel(ctx, []string{"iperf3", "-s", "-1"},
				[]string{"iperf3", "-J", "-c", s.host, "-O", "1", "-t", strconv.Itoa(p.opts.seconds), "-l", length})
			if err != nil {
				return 0, err
			}
			got, err := iperfRate([]byte(out))
			if err != nil {
				return 0, err
			}
			best = max(best, got)
		}
		return best, nil
	}}
}

// iperfRate parses iperf3's report.
func iperfRate(report []byte) (float64, error) {
	var r struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(report, &r); err != nil {
		return 0, fmt.Errorf("report of iperf3: %w", err)
	}
	if r.Error != "" || r.End.Received.BitsPerSecond <= 0 {
		return 0, fmt.Errorf("iperf3 received %v bit/s: %s", r.End.Received.BitsPerSecond, r.Error)
	}
	return r.End.Received.BitsPerSecond / 8, nil
}

// ucxLists returns the values of UCX_TLS with which UCX is measured as a transport of hmcfs.
func ucxLists() []string { return []string{"tcp", "posix,cma"} }

// ucxEnv returns the environment of both ends for a value of UCX_TLS.
func ucxEnv(tls string) []string {
	env := []string{"UCX_TLS=" + tls}
	if tls == "tcp" {
		env = append(env, "UCX_NET_DEVICES=lo")
	}
	return env
}

// perftest runs one test of ucx_perftest on this machine and returns its line of figures by
// the names of their columns.
func perftest(ctx context.Context, tls string, args ...string) (map[string]float64, error) {
	s := here(ucxEnv(tls))
	out, err := s.duel(ctx, []string{"ucx_perftest"}, append([]string{"ucx_perftest", s.host, "-f", "-v"}, args...))
	if err != nil {
		return nil, err
	}
	return ucxFigures(out)
}

// ucxFigures parses the CSV of ucx_perftest: a line of names, then one of values.
func ucxFigures(report string) (map[string]float64, error) {
	var names []string
	lines := bufio.NewScanner(strings.NewReader(report))
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ",")
		switch {
		case fields[0] == "iterations":
			names = fields
		case len(names) > 0 && len(fields) == len(names):
			out := map[string]float64{}
			for i, text := range fields {
				v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
				if err != nil {
					return nil, fmt.Errorf("figures of ucx_perftest: %w", err)
				}
				out[names[i]] = v
			}
			return out, nil
		}
	}
	return nil, fmt.Errorf("ucx_perftest says %q", report)
}

// ucxRate returns a side of bandwidth rows: a test of ucx_perftest, in bytes per second, with
// its default number of outstanding operations or one at a time, whichever is better.
func (p *peers) ucxRate(tls, test string, size devices.Size) side {
	return side{Name: test, Run: func(ctx context.Context) (float64, error) {
		moved := p.opts.moved
		if tls == "tcp" {
			moved = p.opts.slow
		}
		times := max(2, min(1000, int(moved/size)))
		var best float64
		for _, outstanding := range []string{"0", "1"} {
			got, err := perftest(ctx, tls, "-t", test, "-s", fmt.Sprint(uint64(size)), "-O", outstanding,
				"-n", strconv.Itoa(times), "-w", strconv.Itoa(max(1, times/10)))
			if err != nil {
				return 0, err
			}
			// Its MB are 2^20 bytes.
			best = max(best, got["overall_bw"]*float64(devices.MiB))
		}
		return best, nil
	}}
}

// ucxLatency returns a side of latency rows: tag_lat of ucx_perftest, in seconds.
func (p *peers) ucxLatency(name, tls string) side {
	return side{Name: name, Run: func(ctx context.Context) (float64, error) {
		got, err := perftest(ctx, tls, "-t", "tag_lat", "-s", "8",
			"-n", strconv.Itoa(p.opts.trips), "-w", strconv.Itoa(p.opts.trips/10))
		return got["50.0_percentile_lat"] / 1e6, err
	}}
}
