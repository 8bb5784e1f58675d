package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/tests/lab"
)

// player is a process of another user, on one node.
type player struct {
	role
	cmd   *exec.Cmd
	stdin io.WriteCloser
	// phases receives the word that ends each phase. ended is closed at the end of the
	// output; files and tries are complete then.
	phases chan word
	ended  chan struct{}
	files  []left
	tries  map[string]tries
}

// play starts a process of a user on a node.
func (r *run) play(n *lab.Node, uid int, what role) (*player, error) {
	what.Mount, what.Other, what.Victims, what.VictimUID = n.Dir, r.otherOf(n).Name, r.names(), victimUID
	for _, all := range r.lab.Nodes {
		what.Addresses, what.Runtime = append(what.Addresses, all.Address()), append(what.Runtime, all.RuntimeDir())
	}
	text, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	p := &player{role: what, phases: make(chan word, 8), ended: make(chan struct{})}
	p.cmd = exec.Command("/proc/self/exe")
	p.cmd.Args[0], p.cmd.Dir = os.Args[0], "/"
	p.cmd.Env = append(os.Environ(), roleEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err = n.Space.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", what.Name, err)
	}
	go p.listen(stdout, r.violate)
	return p, nil
}

// listen reads the words of the process until its output ends.
func (p *player) listen(from io.Reader, violate func(string, ...any)) {
	defer close(p.ended)
	for in := json.NewDecoder(from); ; {
		var w word
		if err := in.Decode(&w); err != nil {
			if !errors.Is(err, io.EOF) {
				violate("%s: %v", p.Name, err)
			}
			return
		}
		switch {
		case w.Violation != "":
			violate("%s: %s", p.Name, w.Violation)
		case w.Phase != "":
			p.phases <- w
		case w.Tries != nil:
			p.tries = w.Tries
		default:
			p.files = w.Files
		}
	}
}

// phase ends a phase, and returns the durations of the operations in it.
func (p *player) phase(name string, slack time.Duration) (map[string]latency, error) {
	if _, err := fmt.Fprintln(p.stdin, name); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	timer := time.NewTimer(slack)
	defer timer.Stop()
	select {
	case w := <-p.phases:
		return w.Latencies, nil
	case <-p.ended:
		return nil, fmt.Errorf("%s has ended by itself", p.Name)
	case <-timer.C:
		return nil, fmt.Errorf("%s does not answer", p.Name)
	}
}

// end asks the process to end, and kills it if it has not ended within slack.
func (p *player) end(slack time.Duration) error {
	err := p.stdin.Close()
	timer := time.NewTimer(slack)
	defer timer.Stop()
	select {
	case <-p.ended:
		return errors.Join(err, p.cmd.Wait())
	case <-timer.C:
	}
	err = fmt.Errorf("%s has not ended within %v; its threads wait in %v", p.Name, slack, p.waits())
	return errors.Join(err, p.kill())
}

// waits returns the kernel functions in which the threads wait, for a report.
func (p *player) waits() (all []string) {
	dir := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		stack, err := os.ReadFile(dir + "/" + e.Name() + "/wchan")
		if err == nil {
			all = append(all, string(stack))
		}
	}
	return all
}

// kill kills the process. It does not wait, because the kernel may hold it.
func (p *player) kill() error {
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return err
}

// endAttackers ends the attackers and prints what they have tried.
func (r *run) endAttackers() {
	all := map[string]tries{}
	for _, p := range r.attackers {
		if err := p.end(r.slack); err != nil {
			r.violate("attacker: %v", err)
			continue
		}
		for name, t := range p.tries {
			have := all[name]
			if have.Errors == nil {
				have.Errors = map[string]int{}
			}
			have.Tried, have.Done = have.Tried+t.Tried, have.Done+t.Done
			for kind, n := range t.Errors {
				have.Errors[kind] += n
			}
			all[name] = have
		}
	}
	r.attackers = nil
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(r.out, "  %-46s %6d tried, %6d done, first errors %v\n", name, all[name].Tried, all[name].Done, all[name].Errors)
	}
}

// endAll kills the remaining processes of an aborted attack.
func (r *run) endAll() {
	for _, p := range slices.Concat(r.victims, r.attackers) {
		if err := p.kill(); err != nil {
			r.violate("kill %s: %v", p.Name, err)
		}
	}
}
