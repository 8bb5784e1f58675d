package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// shown is a command of a document with what it prints. A line "…" stands for any lines, and "…"
// in a line for any text.
type shown struct {
	command string
	prints  []string
	// crash is set if the daemon is killed, and mounts again, before the command.
	crash bool
}

// crashMark is the comment of a document before the commands that follow a crash.
const crashMark = "<!-- the daemon is killed, and mounts again -->"

// console returns the commands of the blocks of a document that are transcripts.
func console(text string) (all []shown) {
	inside, crash := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == crashMark:
			crash = true
		case line == "```console":
			inside = true
		case strings.HasPrefix(line, "```"):
			inside = false
		case inside && strings.HasPrefix(line, "$ "):
			all = append(all, shown{command: line[2:], crash: crash})
			crash = false
		case inside:
			all[len(all)-1].prints = append(all[len(all)-1].prints, line)
		}
	}
	return all
}

// blocks returns the text of the blocks of a document that are in a language.
func blocks(text, language string) (all []string) {
	for _, part := range strings.Split(text, "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		all = append(all, block)
	}
	return all
}

// expects returns the pattern of what a command prints.
func (s shown) expects() *regexp.Regexp {
	pattern := "^"
	for _, line := range s.prints {
		if line == "…" {
			pattern += `(?s:.*)`
			continue
		}
		pattern += strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "\n"
	}
	return regexp.MustCompile(pattern + "$")
}

// document reads a document of the sources.
func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name))
	must(t, err)
	return string(text)
}

// shell returns a function that runs commands of a document, on a mount in place of /mnt/hmc.
func shell(t *testing.T, m *mnt.M) func(program string, args ...string) string {
	t.Helper()
	bin := t.TempDir()
	exe, err := os.Executable()
	must(t, err)
	must(t, os.Chmod(bin, 0o755))
	must(t, os.Symlink(exe, filepath.Join(bin, "hmcfs")))
	dir := t.TempDir()
	return func(program string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+filepath.Dir(kit.Python())+":"+os.Getenv("PATH"), "LC_ALL=C",
			"PYTHONPATH="+pythonFolder(t), "PYTHONDONTWRITEBYTECODE=1", "HMCFS_MOUNT="+m.Dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return string(out) + "(" + err.Error() + ")\n"
		}
		return string(out)
	}
}

// TestTroubleshooting runs the transcripts of docs/troubleshooting.md: the messages that it quotes
// are those that a mount gives.
func TestTroubleshooting(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "tool:getfattr", "tool:setpriv")
	text := document(t, "docs/troubleshooting.md")
	m := mnt.Mount(t, mnt.Options{Devices: []string{"host,size=64MiB", "sim:0,size=64MiB"}, AllowOther: true})
	run := shell(t, m)
	there := strings.NewReplacer("/mnt/hmc", m.Dir, "4711", strconv.Itoa(os.Getpid()))
	all := console(text)
	if len(all) == 0 {
		t.Fatal("the document has no transcripts")
	}
	for _, s := range all {
		if s.crash {
			m.Kill()
			m.Start()
		}
		for i := range s.prints {
			s.prints[i] = there.Replace(s.prints[i])
		}
		got := regexp.MustCompile(`\(exit status \d+\)\n$`).ReplaceAllString(run("bash", "-c", there.Replace(s.command)), "")
		if !s.expects().MatchString(got) {
			t.Errorf("$ %s\nprints\n%snot\n%s", s.command, got, strings.Join(s.prints, "\n"))
		}
	}
	for _, quoted := range blocks(text, "text") {
		if _, err := exec.Command("grep", "-rqF", "--include=*.go", strings.TrimSpace(quoted), "../cmd", "../fs", "../objects").CombinedOutput(); err != nil {
			t.Errorf("no source has the message %q", quoted)
		}
	}
}

// TestReadme runs the snippets of README.md, on the simulated devices that they name.
func TestReadme(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy")
	text := document(t, "README.md")
	if n := strings.Count(text, "\n"); n > 150 {
		t.Errorf("the README has %d lines; 150 are one screen and a few more", n)
	}
	m := mnt.Mount(t, mnt.Options{})
	run := shell(t, m)
	there := strings.NewReplacer("/mnt/hmc", m.Dir)
	run("bash", "-c", "head -c 100000 /dev/urandom >model.safetensors")
	for language, program := range map[string][]string{"sh": {"bash", "-euc"}, "python": {kit.Python(), "-c"}} {
		all := blocks(text, language)
		if len(all) != 1 {
			t.Errorf("the README has %d snippets in %s, not one", len(all), language)
		}
		for _, snippet := range all {
			out := run(program[0], program[1], there.Replace(snippet))
			if strings.Contains(out, "(exit status") {
				t.Errorf("%s\nprints\n%s", snippet, out)
			}
		}
	}
	sum := run("bash", "-c", "cat model.safetensors | sha256sum; cat "+m.Path("host", "received")+" | sha256sum")
	if one, two, _ := strings.Cut(strings.TrimSpace(sum), "\n"); one != two {
		t.Errorf("what was handed over has other bytes: %s", sum)
	}
}

// quickstart returns the indented lines of docs/quickstart.md, by their sections.
func quickstart(text string) (sections map[string][]string) {
	sections = map[string][]string{}
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "#") {
			section = strings.TrimLeft(line, "# ")
		}
		if command, is := strings.CutPrefix(line, "    "); is {
			sections[section] = append(sections[section], command)
		}
	}
	return sections
}

// TestQuickstart runs the commands of docs/quickstart.md that need one mount, on simulated devices, and
// logs the others. Sections about several nodes, and about the library alone, have none.
func TestQuickstart(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "numpy", "tool:setfattr")
	skipped := regexp.MustCompile(`^hmcfs (mount|umount|serve|bind|watch|run) ` + // other mounts, processes and hosts; what does not end
		`|nodes/b|^\S+(/|/KEY|/NODE/…)  +|^cuda0/ ocl0/`) // other nodes; listings
	m := mnt.Mount(t, mnt.Options{})
	run := shell(t, m)
	there := strings.NewReplacer("/mnt/hmc", m.Dir, "ocl0", "sim0", "cuda0", "sim0", "cuda1", "sim1", "hmcfs top ", "hmcfs top --once --interval 100ms ", "./program", "true")
	out := run(kit.Python(), "-c", "import hmcfs, numpy as np; np.save('big.npy', np.arange(50000.)); hmcfs.save_file({'wte': np.arange(10.)}, 'm.safetensors')")
	out += run("bash", "-c", "echo some bytes >"+m.Path("host", "a.bin"))
	if out != "" {
		t.Fatal(out)
	}
	ran := 0
	for _, section := range []string{"Mount and use", "Pass tensors between processes", "Collectives"} {
		var script []string
		for _, command := range quickstart(document(t, "docs/quickstart.md"))[section] {
			if skipped.MatchString(command) {
				t.Logf("not run: %s", command)
				continue
			}
			script = append(script, there.Replace(command))
		}
		ran += len(script)
		if out := run("bash", "-euxc", strings.Join(script, "\n")+"\nwait"); strings.Contains(out, "(exit status") {
			t.Errorf("%s: the commands print\n%s", section, out)
		}
	}
	if ran < 20 {
		t.Errorf("only %d commands were run", ran)
	}
}
