// Picture runs the commands of the README's picture on a real mount, and draws what they printed:
//
//	go run ./tests/demo/picture -hmcfs bin/hmcfs -o docs/demo.svg
//
// It needs root, /dev/fuse and an OpenCL device. The mount is in a mount namespace of its own, at
// /mnt/hmc as in the README, and ends with it.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"
)

// commands are those that the picture shows, each with what it is for.
func commands() []string {
	return []string{
		"hmcfs mount /mnt/hmc",
		"ls /mnt/hmc",
		"cp m.safetensors /mnt/hmc/ocl0/           # into the device's memory",
		"cd /mnt/hmc/ocl0",
		"cp m.safetensors copy                     # no byte passes through cp",
		"getfattr -n user.hmc.path copy            # the path that the bytes took",
		"ls m.safetensors.tensors                  # each tensor is a file of its own",
		`python3 -c 'import numpy; print(numpy.load("m.safetensors.tensors/x.npy").shape)'`,
		"hmcfs mset w0=m.safetensors               # a key, for any program of any node",
		"cmp ~/m.safetensors /mnt/hmc/keys/w0 && echo the same bytes",
		"cd && hmcfs umount /mnt/hmc",
	}
}

// setUp makes the namespace's /mnt and /run its own, and a file to copy.
const setUp = `set -e
mount -t tmpfs tmpfs /mnt && mount -t tmpfs tmpfs /run && mkdir /mnt/hmc /mnt/files
export HMCFS_STATE_DIR=/mnt/state HMCFS_DEVICE=opencl:0,size=256MiB HMCFS_CONFIG=/mnt/files/config.yaml LC_ALL=C HOME=/mnt/files
ls() { command ls -C "$@"; }
: >"$HMCFS_CONFIG"
cd /mnt/files && python3 - <<'END'
import json, os, struct
n = 4096 * 2048 * 2
h = json.dumps({"x": {"dtype": "F16", "shape": [4096, 2048], "data_offsets": [0, n]}}).encode()
open("m.safetensors", "wb").write(struct.pack("<Q", len(h)) + h + os.urandom(n))
END
trap 'hmcfs umount --force /mnt/hmc >/dev/null 2>&1 || true' EXIT
`

func main() {
	program := flag.String("hmcfs", "bin/hmcfs", "the `program` to run")
	out := flag.String("o", "docs/demo.svg", "the `file` to write")
	python := flag.String("python", "/usr/bin/python3", "a Python that has NumPy")
	flag.Parse()
	if err := run(*program, *python, *out); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(program, python, out string) (err error) {
	dir, err := os.MkdirTemp("", "hmcfs-picture-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if program, err = filepath.Abs(program); err != nil {
		return err
	}
	if err = errors.Join(os.Symlink(program, filepath.Join(dir, "hmcfs")), os.Symlink(python, filepath.Join(dir, "python3"))); err != nil {
		return err
	}
	lines, err := record(dir)
	if err != nil {
		return err
	}
	var svg bytes.Buffer
	draw(&svg, lines)
	return os.WriteFile(out, svg.Bytes(), 0o644)
}

// record runs the commands, with the programs of a directory first, and returns the lines of the
// terminal.
func record(dir string) ([]string, error) {
	var script strings.Builder
	script.WriteString(setUp)
	for _, c := range commands() {
		fmt.Fprintf(&script, "echo %s\n%s\n", quote("$ "+c), c)
	}
	cmd := exec.Command("bash", "-c", script.String())
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	said, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, said)
	}
	return strings.FieldsFunc(string(said), func(c rune) bool { return c == '\n' }), nil
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// The measures of the picture, in pixels.
const (
	width      = 83 // characters
	charWidth  = 8.43
	lineHeight = 19
	margin     = 18
)

// draw writes the lines as a terminal of 83 columns.
func draw(w io.Writer, lines []string) {
	var rows []string
	for _, line := range lines {
		rows = append(rows, wrap(line, width)...)
	}
	wide, high := width*charWidth+2*margin, len(rows)*lineHeight+2*margin
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d">
<title>hmcfs: a mount, a copy within a device, a tensor as a file</title>
<rect width="100%%" height="100%%" rx="8" fill="#1b1f27"/>
<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">
`, wide, high, wide, high)
	typed := false
	for i, row := range rows {
		y := margin + 14 + i*lineHeight
		typed = strings.HasPrefix(row, "$ ") || typed && strings.HasPrefix(row, "  ")
		command, comment, _ := strings.Cut(row, " # ")
		colour := map[bool]string{true: "#f2f4f8", false: "#9ecbff"}[typed]
		fmt.Fprintf(w, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", margin, y, colour, html.EscapeString(command))
		if comment != "" {
			x := margin + float64(utf8.RuneCountInString(command)+1)*charWidth
			fmt.Fprintf(w, `<text x="%.1f" y="%d" fill="#7d8899"># %s</text>`+"\n", x, y, html.EscapeString(comment))
		}
	}
	fmt.Fprintln(w, "</g>\n</svg>")
}

// wrap cuts a line at spaces; what follows is indented, so that it is a command as well.
func wrap(line string, n int) []string {
	var out []string
	for utf8.RuneCountInString(line) > n {
		at := strings.LastIndex(line[:n], " ")
		if at < n/2 {
			at = n
		}
		out, line = append(out, line[:at]), "    "+strings.TrimLeft(line[at:], " ")
	}
	return append(out, line)
}
