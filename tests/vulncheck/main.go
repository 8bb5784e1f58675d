// Vulncheck looks for known vulnerabilities in what the binary and the tests
// are built from:
//
//	go run ./tests/vulncheck [-optional] [-db URL] [-wait 10s] [-govulncheck PATH] [PACKAGE …]
//
// It asks the database whether it answers before it runs govulncheck. Where it
// does not, nothing is checked, and the last line says so: NOT CHECKED, and
// why. That is a failure unless -optional is given.
//
// The exit status is 0 when nothing was found, 3 when something was, and 1
// when it was not checked or govulncheck has failed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// The exit statuses. found is govulncheck's own.
const (
	clean  = 0
	failed = 1
	usage  = 2
	found  = 3
)

func main() { os.Exit(start(os.Args[1:], os.Stdout)) }

// start returns the exit status.
func start(args []string, out io.Writer) int {
	flags := flag.NewFlagSet("vulncheck", flag.ContinueOnError)
	flags.SetOutput(out)
	optional := flags.Bool("optional", false, "a database that does not answer is no failure")
	db := flags.String("db", "https://vuln.go.dev", "the vulnerability database")
	wait := flags.Duration("wait", 10*time.Second, "how long the database may take to answer")
	program := flags.String("govulncheck", "bin/tools/govulncheck", "govulncheck, as make tools builds it")
	if err := flags.Parse(args); err != nil {
		return usage
	}
	if err := answers(context.Background(), *db, *wait); err != nil {
		fmt.Fprintf(out, "NOT CHECKED for known vulnerabilities: the database does not answer: %v\n", err)
		if *optional {
			return clean
		}
		return failed
	}
	packages := flags.Args()
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	cmd := exec.Command(*program, append([]string{"-db", *db, "-test"}, packages...)...)
	cmd.Stdout, cmd.Stderr = out, out
	switch exit, ended := errors.AsType[*exec.ExitError](cmd.Run()); {
	case cmd.ProcessState == nil:
		fmt.Fprintf(out, "NOT CHECKED for known vulnerabilities: %s does not start; run make tools\n", *program)
		return failed
	case !ended:
		return clean
	case exit.ExitCode() == found:
		return found
	default:
		fmt.Fprintf(out, "NOT CHECKED for known vulnerabilities: govulncheck has failed: %v\n", exit)
		return failed
	}
}

// largestIndex bounds what is read of the database's index.
const largestIndex = 1 << 20

// answers returns why the address is not that of a vulnerability database that
// answers in time: some networks answer every name with a page of their own.
func answers(ctx context.Context, db string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(db, "/")+"/index/db.json", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // nothing is written
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", req.URL, resp.Status)
	}
	var index struct {
		Modified time.Time `json:"modified"`
	}
	if err = json.NewDecoder(io.LimitReader(resp.Body, largestIndex)).Decode(&index); err != nil || index.Modified.IsZero() {
		return fmt.Errorf("%s is not the index of a vulnerability database: %w", req.URL, errors.Join(err, errNoIndex))
	}
	return nil
}

// errNoIndex is an answer of something else than a database.
var errNoIndex = errors.New("no time of change")
