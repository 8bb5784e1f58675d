package ucx

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestHeaders makes a C compiler print the values in UCX's headers.
func TestHeaders(t *testing.T) {
	kit.Require(t, "ucx-headers")
	values := constants()
	maps.Copy(values, layouts())
	var source strings.Builder
	source.WriteString("#include <ucp/api/ucp.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n")
	for name := range values {
		fmt.Fprintf(&source, "printf(\"%%lld %s\\n\", (long long)(%s));\n", name, name)
	}
	source.WriteString("return 0; }\n")

	seen := 0
	lines := bufio.NewScanner(bytes.NewReader(runC(t, source.String())))
	for lines.Scan() {
		number, name, _ := strings.Cut(lines.Text(), " ")
		seen++
		if want := fmt.Sprint(values[name]); number != want {
			t.Errorf("%s is %s in the headers and %s here", name, number, want)
		}
	}
	if seen != len(values) || seen < 70 {
		t.Errorf("%d values were compared, of %d", seen, len(values))
	}
}

// runC compiles and runs a C program.
func runC(t *testing.T, source string) []byte {
	t.Helper()
	dir := t.TempDir()
	file, program := filepath.Join(dir, "print.c"), filepath.Join(dir, "print")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
