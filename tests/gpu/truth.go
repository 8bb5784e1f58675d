package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
)

// deviceChecks needs no mount: it checks that hmcfs's implementation of the device meets the
// contract of all devices, and, with the independent program alone, what the machine's driver
// can do between two processes. If a check through the mount fails where the latter passes,
// the fault is hmcfs's.
func (s *suite) deviceChecks(ctx context.Context) {
	if s.device.family != "sim" { // a simulated device is no hardware, and its own tests cover this
		s.check(ctx, "conformance of the device, without a mount", s.conformance)
	}
	for _, kind := range s.shareKinds() {
		if kind != "ipc" && s.descriptors != nil {
			s.withhold("two processes share memory without hmcfs: "+kind, s.descriptors)
			continue
		}
		s.check(ctx, "two processes share memory without hmcfs: "+kind, func(ctx context.Context) (string, error) {
			return s.shareAlone(ctx, kind)
		})
	}
}

// conformance runs the suite of tests/conformance/devicetest on the device.
func (s *suite) conformance(ctx context.Context) (string, error) {
	const size = 64 * devices.MiB
	cmd := s.tool(ctx, "conformance", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), "HMCFS_CONFORMANCE_SPEC="+s.device.spec+",size="+bytes(size))
	out, err := cmd.CombinedOutput()
	var failures, byHost []string
	passed := 0
	for line := range strings.Lines(string(out)) {
		switch text := strings.TrimSpace(line); {
		case strings.HasPrefix(text, "--- PASS: TestConformance/"):
			passed++
		case strings.HasPrefix(text, "combining elements on the host"):
			byHost = append(byHost, text)
		case !strings.HasPrefix(text, "---") && !strings.HasPrefix(text, "==="):
			failures = append(failures, text)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.Join(failures, " "))
	}
	if passed == 0 {
		return "", fmt.Errorf("nothing was tested: %s", out)
	}
	seen := fmt.Sprintf("%d parts on %v", passed, devices.Size(size))
	if len(byHost) > 0 {
		seen += fmt.Sprintf("; THE DRIVER REFUSED KERNELS of %d types: %s", len(byHost), byHost[0])
	}
	return oneLine(seen), nil
}

// shareKinds returns the kinds of handles that the device's family has.
func (s *suite) shareKinds() []string {
	if s.device.family == "cuda" {
		return []string{"ipc", "vmm-fd"}
	}
	return nil
}

// shareAlone checks that a truth process can open the memory of another one.
func (s *suite) shareAlone(ctx context.Context, kind string) (_ string, err error) {
	owner, handle, err := s.own(ctx, kind, s.sizes.check, 3, 8192)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, owner.end()) }()
	opener, err := s.open(ctx, handle)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, opener.end()) }()
	return s.sizes.check.String() + " in 3 pieces", errors.Join(opener.agree(verify(seedA)), opener.disagree(verify(seedB)),
		opener.agree(fill(seedB)),
		owner.agree(verify(seedB)), owner.agree("guards"))
}

func verify(seed uint64) string { return fmt.Sprint("verify ", seed) }
func fill(seed uint64) string   { return fmt.Sprint("fill ", seed) }
