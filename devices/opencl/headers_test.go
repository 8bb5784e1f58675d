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
	"unsafe"
)

// constants are those of consts.go under the headers' names. Those of
// extensions that a set of headers does not know yet are left out there.
func constants() map[string]uint64 {
	return map[string]uint64{
		"CL_DEVICE_TYPE_CPU": clDeviceTypeCPU, "CL_DEVICE_TYPE_GPU": clDeviceTypeGPU,
		"CL_DEVICE_TYPE_ACCELERATOR": clDeviceTypeAccelerator, "CL_DEVICE_TYPE_ALL": clDeviceTypeAll,
		"CL_PLATFORM_NAME": clPlatformName, "CL_DEVICE_TYPE": clDeviceType,
		"CL_DEVICE_MAX_MEM_ALLOC_SIZE":  clDeviceMaxMemAllocSize,
		"CL_DEVICE_MEM_BASE_ADDR_ALIGN": clDeviceMemBaseAddrAlign,
		"CL_DEVICE_GLOBAL_MEM_SIZE":     clDeviceGlobalMemSize,
		"CL_DEVICE_AVAILABLE":           clDeviceAvailable, "CL_DEVICE_NAME": clDeviceName,
		"CL_DEVICE_VERSION": clDeviceVersion, "CL_DEVICE_EXTENSIONS": clDeviceExtensions,
		"CL_DEVICE_HOST_UNIFIED_MEMORY": clDeviceHostUnifiedMemory,
		"CL_DEVICE_PCI_BUS_INFO_KHR":    clDevicePCIBusInfo,
		"CL_DEVICE_PCI_BUS_ID_NV":       clDevicePCIBusIDNV, "CL_DEVICE_PCI_SLOT_ID_NV": clDevicePCISlotIDNV,
		"CL_DEVICE_PCI_DOMAIN_ID_NV":       clDevicePCIDomainIDNV,
		"CL_DEVICE_GLOBAL_FREE_MEMORY_AMD": clDeviceFreeMemoryAMD,
		"CL_MEM_READ_WRITE":                clMemReadWrite, "CL_MEM_ALLOC_HOST_PTR": clMemAllocHostPtr,
		"CL_MEM_USE_HOST_PTR": clMemUseHostPtr,
		"CL_MAP_READ":         clMapRead, "CL_MAP_WRITE": clMapWrite,
		"CL_EVENT_COMMAND_EXECUTION_STATUS": clEventCommandExecutionStatus, "CL_TRUE": clTrue,
		"sizeof(cl_device_pci_bus_info_khr)":                 uint64(unsafe.Sizeof(pciBusInfo{})),
		"offsetof(cl_device_pci_bus_info_khr, pci_bus)":      uint64(unsafe.Offsetof(pciBusInfo{}.Bus)),
		"offsetof(cl_device_pci_bus_info_khr, pci_device)":   uint64(unsafe.Offsetof(pciBusInfo{}.Device)),
		"offsetof(cl_device_pci_bus_info_khr, pci_function)": uint64(unsafe.Offsetof(pciBusInfo{}.Function)),
	}
}

// TestHeaders has a C compiler print what the headers say.
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
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
