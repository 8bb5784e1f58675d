package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/tests/chaos/judge"
	"github.com/hmcfs/hmcfs/tests/lab"
)

// opBound bounds the duration of an operation that involves other nodes: up to two nodes
// are waited for, each for --node-timeout (docs/cluster.md), and a stopped daemon of the
// own node until it continues.
const opBound = 2*lab.NodeTimeout + longestStop

// hangs is the time after which a program that has not ended is killed, which is a
// violation.
const hangs = 3 * time.Minute

// answer is the result for one key, as printed by hmcfs with --json.
type answer struct {
	Key    string `json:"key"`
	OK     bool   `json:"ok"`
	Exists *bool  `json:"exists"`
	Code   string `json:"code"`
	Error  string `json:"error"`
}

// err returns the error of the key, or nil.
func (a answer) err() error {
	if a.OK || a.Exists != nil && a.Error == "" {
		return nil
	}
	return fmt.Errorf("%s: %s", a.Code, a.Error)
}

// ask runs a verb of keys and returns the result for each key. The error is that of a
// program that printed no result.
func (r *run) ask(ctx context.Context, kind string, n *lab.Node, more time.Duration, verb string, args ...string) ([]answer, error) {
	args = append([]string{verb, "--json", "--mount", n.Dir}, args...)
	var out bytes.Buffer
	cmd := n.Command(ctx, args...)
	cmd.Stdout = &out
	began := r.now()
	err := r.finish(cmd)
	var all []answer
	if broken := json.Unmarshal(out.Bytes(), &all); broken != nil || len(all) == 0 {
		err = errors.Join(err, broken)
		if err == nil {
			err = errors.New("no answer")
		}
		r.did(kind, n.Name+" "+strings.Join(args, " "), began, opBound+more, err)
		return nil, err
	}
	r.did(kind, n.Name+" "+strings.Join(args, " "), began, opBound+more, all[0].err())
	return all, nil
}

// ask1 is ask for one key.
func (r *run) ask1(ctx context.Context, kind string, n *lab.Node, more time.Duration, verb string, args ...string) answer {
	all, err := r.ask(ctx, kind, n, more, verb, args...)
	if err != nil {
		return answer{Code: "none", Error: err.Error()}
	}
	return all[0]
}

// finish runs a program to its end, and kills it if it hangs. The error contains its
// standard error.
func (r *run) finish(cmd *exec.Cmd) error {
	var errs bytes.Buffer
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	// A signal from the terminal must not reach the program.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	end := time.AfterFunc(hangs, func() { _ = cmd.Process.Kill() }) // it may have ended already
	defer end.Stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	return nil
}

// within calls fn, which accesses a mount and may hang. If it does, within reports a
// violation and returns false, and the variables that fn sets must not be read.
func (r *run) within(kind, what string, fn func() error) bool {
	began := r.now()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	timer := time.NewTimer(hangs)
	defer timer.Stop()
	select {
	case err := <-done:
		r.did(kind, what, began, opBound, err)
		return true
	case <-timer.C:
		r.violate(judge.Violation{Property: "wait", Text: fmt.Sprintf("%s %s, begun at %.3f s, has not ended after %v", kind, what, began.Seconds(), hangs)})
		return false
	}
}
