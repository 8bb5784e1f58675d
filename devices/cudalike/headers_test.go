package cudalike

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/standin"
)

// header is a vendor's own header, if it is installed.
type header struct {
	source string // of the stand-in
	find   []string
	// include is the file as a program includes it, constants those that this package uses
	// of it.
	include, define string
	constants       map[string]int64
}

func headers() map[string]header {
	return map[string]header{
		"hip": {
			source: "hip", include: "hip/hip_runtime_api.h", define: "__HIP_PLATFORM_AMD__",
			find: []string{"/usr/include", "/opt/rocm/include", "/opt/dtk/include"},
			constants: map[string]int64{
				"hipErrorInvalidValue": prefixErrorInvalidValue, "hipErrorOutOfMemory": prefixErrorMemoryAllocation,
				"hipErrorDeinitialized": hipErrorDeinitialized, "hipErrorECCNotCorrectable": prefixErrorECCUncorrectable,
				"hipErrorIllegalAddress": prefixErrorIllegalAddress, "hipErrorLaunchTimeOut": prefixErrorLaunchTimeout,
				"hipErrorPeerAccessAlreadyEnabled": prefixErrorPeerAccessAlreadyOn,
				"hipErrorContextIsDestroyed":       prefixErrorContextIsDestroyed, "hipErrorAssert": prefixErrorAssert,
				"hipErrorLaunchFailure": prefixErrorLaunchFailure, "hipStreamNonBlocking": prefixStreamNonBlocking,
				"hipHostRegisterPortable": prefixHostRegisterPortable, "HIP_IPC_HANDLE_SIZE": handleSize,
				"sizeof(hipIpcMemHandle_t)": handleSize, "sizeof(hipUUID)": 16,
			},
		},
		"cn": {
			source: "cn", include: "cn_api.h",
			find: []string{"/usr/local/neuware/include"},
			constants: map[string]int64{
				"CN_ERROR_DEINITIALIZED": cnErrorDeinitialized, "CN_ERROR_ECC_UNCORRECTABLE": cnErrorECCUncorrectable,
				"CN_MEMORY_ERROR_OUT_OF_MEMORY":             cnMemoryErrorOutOfMemory,
				"CN_MEMORY_ERROR_OUT_OF_PROCESS_MAX_MEMORY": cnMemoryErrorOutOfProcess,
				"CN_INVOKE_ERROR_EXECUTED_TIMEOUT":          cnInvokeErrorExecutedTimeout,
				"CN_INVOKE_ERROR_ILLEGAL_INSTRUCTION":       cnInvokeErrorIllegalInstruction,
				"CN_INVOKE_ERROR_MEMORY_ILLEGAL_ADDRESS":    cnInvokeErrorIllegalAddress,
				"CN_INVOKE_ERROR":                           cnInvokeError,
				"CN_IPC_MEM_DEFAULT":                        cnIPCMemDefault,
				"sizeof(CNIpcMemHandle)":                    cnHandleSize,
			},
		},
		"acl": {
			source: "acl", include: "acl/acl.h",
			find: []string{
				os.Getenv("ASCEND_HOME_PATH") + "/include", "/usr/local/Ascend/ascend-toolkit/latest/include",
			},
			constants: map[string]int64{
				"ACL_ERROR_REPEAT_INITIALIZE": aclErrorRepeatInitialize, "ACL_ERROR_BAD_ALLOC": aclErrorBadAlloc,
				"ACL_ERROR_RT_MEMORY_ALLOCATION": aclErrorMemoryAllocation, "ACL_ERROR_RT_NO_DEVICE": aclErrorNoDevice,
				"ACL_ERROR_RT_DEVICE_OOM": aclErrorDeviceOOM, "ACL_ERROR_RT_TS_ERROR": aclErrorTSError,
				"ACL_ERROR_RT_LOST_HEARTBEAT":          aclErrorLostHeartbeat,
				"ACL_ERROR_RT_DEVICE_MEM_ERROR":        aclErrorDeviceMemError,
				"ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR": aclErrorHBMMultiBitECC,
				"ACL_ERROR_RT_SOCKET_CLOSE":            aclErrorSocketClose,
				"ACL_MEM_MALLOC_HUGE_FIRST":            aclMemMallocHugeFirst,
				"ACL_MEMCPY_HOST_TO_DEVICE":            aclMemcpyHostToDevice,
				"ACL_MEMCPY_DEVICE_TO_HOST":            aclMemcpyDeviceToHost,
				"ACL_MEMCPY_DEVICE_TO_DEVICE":          aclMemcpyDeviceToDevice,
				"ACL_DDR_MEM":                          aclDDRMem, "ACL_HBM_MEM": aclHBMMem,
				"ACL_HOST_REG_PINNED":                               aclHostRegPinned,
				"ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION": aclIPCDisablePIDValidation,
				"ACL_RT_IPC_MEM_IMPORT_FLAG_DEFAULT":                aclIPCImportDefault,
				"sizeof(aclrtUuid)":                                 16,
			},
		},
	}
}

// TestHeaders compiles each stand-in against the vendor's header, if that is installed or
// HMCFS_VENDOR_HEADERS names its folder: a signature that differs does not compile. Then
// the header's constants are compared.
func TestHeaders(t *testing.T) {
	kit.Require(t, "tool:cc")
	for name, h := range headers() {
		t.Run(name, func(t *testing.T) {
			dir := ""
			for _, folder := range append(h.find, filepath.SplitList(os.Getenv("HMCFS_VENDOR_HEADERS"))...) {
				if _, err := os.Stat(filepath.Join(folder, h.include)); err == nil {
					dir = folder
				}
			}
			if dir == "" {
				if name == "hip" {
					kit.Require(t, "hip")
					t.Fatal("libamdhip64 is installed and its headers are not")
				}
				t.Skipf("no %s", h.include)
			}
			compile(t, "-fsyntax-only", "-Werror", "-DHMCFS_HEADERS", "-isystem", dir, standin.Source(t, h.source))
			h.compare(t, dir)
		})
	}
}

// compare compares the constants with the header's, printed by a C program.
func (h header) compare(t *testing.T, dir string) {
	t.Helper()
	var text strings.Builder
	if h.define != "" {
		fmt.Fprintf(&text, "#define %s\n", h.define)
	}
	fmt.Fprintf(&text, "#include <%s>\n#include <stdio.h>\nint main(void) {\n", h.include)
	names := slices.Sorted(maps.Keys(h.constants))
	for _, name := range names {
		fmt.Fprintf(&text, "printf(\"%%lld\\n\", (long long)(%s));\n", name)
	}
	text.WriteString("return 0; }\n")
	source, program := filepath.Join(t.TempDir(), "print.c"), filepath.Join(t.TempDir(), "print")
	if err := os.WriteFile(source, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	compile(t, "-isystem", dir, "-o", program, source)
	out, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != len(names) {
		t.Fatalf("%d values for %d names", len(lines), len(names))
	}
	for i, name := range names {
		if want := fmt.Sprint(h.constants[name]); lines[i] != want {
			t.Errorf("%s is %s in the header and %s here", name, lines[i], want)
		}
	}
}

func compile(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "cc", append([]string{"-std=gnu11", "-Wall"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
