package runner

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnvIsNotTheRunners: a config must not set the variables by which supervisors find the
// job's directory, or another directory would be removed.
func TestEnvIsNotTheRunners(t *testing.T) {
	w := newWorld(t, 1, "true")
	p, err := NewPlan(w.options, nil)
	if err != nil {
		t.Fatal(err)
	}
	j, err := newJob(p, &brief{Job: "j", Count: 1, Hosts: 1}, []string{"10.0.0.1:7"})
	if err != nil {
		t.Fatal(err)
	}
	env, err := j.environment(0)
	if err = errors.Join(err, j.close()); err != nil {
		t.Fatal(err)
	}
	names := []string{marker, outEnv, "HMCFS_BUFFER_X"}
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		names = append(names, name)
	}
	for _, name := range names {
		if _, err := NewPlan(w.options, &Config{Env: map[string]string{name: "/home/me"}}); err == nil {
			t.Errorf("env %s is taken", name)
		}
	}
	if _, err := NewPlan(w.options, &Config{Env: map[string]string{"HMCFS_ALGO": "ring"}}); err != nil {
		t.Errorf("a variable of the library: %v", err)
	}
}

// TestSupervisorRemovesJobsOnly: whatever its arguments, a supervisor removes only
// directories of jobs.
func TestSupervisorRemovesJobsOnly(t *testing.T) {
	w := newWorld(t, 1)
	precious := filepath.Join(w.dir, "precious")
	linked := filepath.Join(w.dir, "hmcfs-job-link")
	open := filepath.Join(w.dir, "hmcfs-job-open")
	real := filepath.Join(w.dir, "hmcfs-job-real")
	for _, dir := range []string{precious, open, real} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(precious, linked), os.Chmod(open, 0o777),
		os.WriteFile(filepath.Join(precious, elsewhere), []byte(precious+"\n"), 0o600),
		os.WriteFile(filepath.Join(real, elsewhere), []byte(precious+"\n"+w.dir+"/precious/../precious\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{precious, linked, open, real, "", "."} {
		cmd := exec.Command(self(), asSupervisor, "--", "true")
		cmd.Env, cmd.Dir = append(os.Environ(), "HMCFS_JOB_DIR="+dir), precious
		_ = cmd.Run() // like a supervisor whose runner has ended
		if _, err := os.Stat(filepath.Join(precious, elsewhere)); err != nil {
			t.Fatalf("with %q: %v", dir, err)
		}
	}
	if _, err := os.Stat(open); err != nil {
		t.Error("a directory that others write to was taken for a job's")
	}
	if _, err := os.Stat(real); err == nil {
		t.Error("a job's directory is left")
	}
	_ = errors.Join(os.Remove(linked), os.Remove(open))
}

// TestOutputGoesWhereItIsSaid: nothing is written through links planted in the directories
// of logs and buffers.
func TestOutputGoesWhereItIsSaid(t *testing.T) {
	w := newWorld(t, 1, "sh", "-c", "echo from the rank")
	victim, logs, save := filepath.Join(w.dir, "victim"), filepath.Join(w.dir, "logs"), filepath.Join(w.dir, "save")
	inside := filepath.Join(save, "rank_0")
	away := filepath.Join(w.dir, "away")
	for _, dir := range []string{logs, save, inside, away} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	log := filepath.Join(logs, "rank0.log")
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600),
		os.Symlink(victim, log), os.Symlink(victim, filepath.Join(inside, "x.bin"))); err != nil {
		t.Fatal(err)
	}
	w.options.LogDir, w.options.Save = logs, save
	c := &Config{Buffers: []Buffer{{Name: "x", DType: "int8", Count: 3}}}
	if _, err := w.run(t.Context(), c); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(victim); string(got) != "precious" {
		t.Errorf("a file that a link leads to is %q now, %v", got, err)
	}
	if got, err := os.ReadFile(log); string(got) != "from the rank\n" {
		t.Errorf("the log is %q, %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(inside, "x.bin")); len(got) != 3 {
		t.Errorf("the buffer is %q, %v", got, err)
	}
	// A whole directory of a rank may be a link too.
	if err := errors.Join(os.RemoveAll(inside), os.Symlink(away, inside)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.run(t.Context(), c); err == nil {
		t.Error("buffers are saved through a link")
	}
	if left, err := os.ReadDir(away); len(left) > 0 || err != nil {
		t.Errorf("%v was written where a link leads, %v", left, err)
	}
}
