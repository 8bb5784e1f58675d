package cuda

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/standin"
)

// includeEnv names the folder of cuda.h if it is at none of the usual places.
const includeEnv = "HMCFS_CUDA_INCLUDE"

// include returns the folder of cuda.h; it skips the test if there is none.
func include(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skipf("needs a C compiler: %v", err)
	}
	dirs := []string{os.Getenv(includeEnv), "/usr/include", "/usr/local/cuda/include", "/opt/cuda/include"}
	for _, pattern := range []string{
		"/usr/local/cuda-*/include",
		"/usr/lib/python3*/*-packages/nvidia/cuda_runtime/include",
		"/usr/local/lib/python3*/*-packages/nvidia/cuda_runtime/include",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "cuda.h")); dir != "" && err == nil {
			return dir
		}
	}
	t.Skipf("cuda.h is not installed; %s names the folder where it is", includeEnv)
	return ""
}

// TestHeaders compares the constants with the vendor's headers, printed by a C program.
func TestHeaders(t *testing.T) {
	dir := include(t)
	for header, values := range map[string]map[string]uint64{"cuda.h": constants(), "nvml.h": managementConstants()} {
		if _, err := os.Stat(filepath.Join(dir, header)); err != nil {
			t.Logf("not compared: %v", err)
			continue
		}
		var source strings.Builder
		fmt.Fprintf(&source, "#include <%s>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n", header)
		for name := range values {
			fmt.Fprintf(&source, "printf(\"%%llu %s\\n\", (unsigned long long)(%s));\n", name, name)
		}
		source.WriteString("return 0; }\n")

		seen := 0
		lines := bufio.NewScanner(bytes.NewReader(runC(t, dir, source.String())))
		for lines.Scan() {
			number, name, _ := strings.Cut(lines.Text(), " ")
			seen++
			if want := fmt.Sprint(values[name]); number != want {
				t.Errorf("%s is %s in the header and %s here", name, number, want)
			}
		}
		if seen != len(values) {
			t.Errorf("%d of %d values of %s were compared", seen, len(values), header)
		}
	}
}

// TestStandInHasTheVendorsABI compiles the stand-ins against the vendor's
// headers: the compiler compares each function with its declaration.
func TestStandInHasTheVendorsABI(t *testing.T) {
	dir := include(t)
	for name, header := range map[string]string{"cuda": "cuda.h", "nvml": "nvml.h"} {
		if _, err := os.Stat(filepath.Join(dir, header)); err != nil {
			t.Logf("not compared: %v", err)
			continue
		}
		out, err := exec.CommandContext(t.Context(), "cc", "-std=gnu11", "-fsyntax-only", "-DHMCFS_STANDIN_VENDOR_HEADER",
			"-Wall", "-Wextra", "-Werror", "-Wno-enum-conversion", "-Wno-deprecated-declarations",
			"-I"+dir, standin.Source(t, name)).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// runC compiles and runs a C program.
func runC(t *testing.T, include, source string) []byte {
	t.Helper()
	dir := t.TempDir()
	file, program := filepath.Join(dir, "print.c"), filepath.Join(dir, "print")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "cc", "-I"+include, "-o", program, file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
