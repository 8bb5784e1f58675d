package main

import (
	"context"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

//go:embed others/calls.py
var callsSource []byte

// debianPython has the packages of Debian: NumPy, and the client of Redis.
const debianPython = "/usr/bin/python3"

// redis is a server without persistence that listens at a Unix socket only.
type redis struct {
	dir    string
	socket string
	server *exec.Cmd
}

// startRedis starts a server below a directory; stop ends it.
func startRedis(ctx context.Context, dir string) (*redis, error) {
	for _, tool := range []string{"redis-server", "redis-benchmark"} {
		if err := installed(tool); err != nil {
			return nil, fmt.Errorf("%w; install redis-server and python3-redis", err)
		}
	}
	r := &redis{dir: filepath.Join(dir, "redis")}
	r.socket = filepath.Join(r.dir, "socket")
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(r.script(), callsSource, 0o600); err != nil {
		return nil, err
	}
	r.server = exec.CommandContext(ctx, "redis-server", "--port", "0", "--unixsocket", r.socket, "--dir", r.dir,
		"--save", "", "--appendonly", "no", "--logfile", filepath.Join(r.dir, "log"))
	r.server.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	r.server.Cancel = func() error { return r.server.Process.Signal(unix.SIGTERM) }
	if err := r.server.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && ctx.Err() == nil; {
		if _, err := os.Stat(r.socket); err == nil {
			return r, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil, errors.Join(errors.New("redis-server does not listen"), r.stop())
}

func (r *redis) script() string { return filepath.Join(r.dir, "calls.py") }

// stop ends the server, which says nothing of use at a signal.
func (r *redis) stop() error {
	if err := r.server.Process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	err := r.server.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return nil
	}
	return err
}

// rate measures calls of one client with its own program: GET or SET of values of one size, in
// pipelines. It returns the calls per second.
func (r *redis) rate(ctx context.Context, call string, size devices.Size, calls, pipeline int) (float64, error) {
	// The program reads the value that SET has written before.
	out, err := measure.Output(exec.CommandContext(ctx, "redis-benchmark", "-s", r.socket, "-c", "1", "--csv",
		"-P", strconv.Itoa(pipeline), "-n", strconv.Itoa(calls), "-d", strconv.FormatUint(uint64(size), 10), "-t", "set,get"))
	if err != nil {
		return 0, err
	}
	return redisRate(out, call)
}

// redisRate parses the report: "SET","47619.05",….
func redisRate(report, call string) (float64, error) {
	in := csv.NewReader(strings.NewReader(report))
	in.FieldsPerRecord = -1
	lines, err := in.ReadAll()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark says %q: %w", report, err)
	}
	for _, fields := range lines {
		if len(fields) > 1 && fields[0] == call {
			return strconv.ParseFloat(fields[1], 64)
		}
	}
	return 0, fmt.Errorf("redis-benchmark says %q", report)
}

// python runs calls.py, and returns the seconds that a call takes.
func (r *redis) python(ctx context.Context, args ...string) (float64, error) {
	packages, err := filepath.Abs(pythonPackage())
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, debianPython, append([]string{r.script()}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	out, err := measure.Output(cmd)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(out, 64)
}

// pythonPackage returns the directory of the Python package, from the top of the repository or
// from here.
func pythonPackage() string {
	const at = "objects/client/python"
	if _, err := os.Stat(at); err == nil {
		return at
	}
	return filepath.Join("..", "..", at)
}
