package opencl

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHeaders compares the constants with the headers, printed by a C program.
func TestHeaders(t *testing.T) {
	values := constants()
	var source strings.Builder
	source.WriteString("#define CL_TARGET_OPENCL_VERSION 300\n#include <CL/cl.h>\n#include <CL/cl_ext.h>\n" +
		"#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n")
	for name := range values {
		line := fmt.Sprintf("printf(\"%%llu %s\\n\", (unsigned long long)(%s));\n", name, name)
		if strings.HasPrefix(name, "CL_") {
			line = "#ifdef " + name + "\n" + line + "#endif\n"
		}
		source.WriteString(line)
	}
	for c := Code(0); c >= -1001; c-- {
		if name := codeName(c); name != "" {
			fmt.Fprintf(&source, "printf(\"%%d code %s\\n\", (int)(%s));\n", name, name)
		}
	}
	source.WriteString("return 0; }\n")

	seen := 0
	lines := bufio.NewScanner(bytes.NewReader(runC(t, source.String())))
	for lines.Scan() {
		number, name, _ := strings.Cut(lines.Text(), " ")
		seen++
		want := fmt.Sprint(values[name])
		if text, is := strings.CutPrefix(name, "code "); is {
			var c Code
			_, _ = fmt.Sscan(number, &c)
			name, want, number = text, text, codeName(c)
		}
		if number != want {
			t.Errorf("%s is %s in the headers and %s here", name, number, want)
		}
	}
	if seen < 80 {
		t.Errorf("only %d values were compared", seen)
	}
}

// runC compiles and runs a C program.
func runC(t *testing.T, source string) []byte {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	require(t, "C compiler", err)
	_, err = os.Stat("/usr/include/CL/cl.h")
	require(t, "OpenCL headers", err)
	dir := t.TempDir()
	file, program := filepath.Join(dir, "print.c"), filepath.Join(dir, "print")
	if err = os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(gcc, "-o", program, file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err = exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
