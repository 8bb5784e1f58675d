package conformance

import (
	"os"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/tests/conformance/devicetest"
)

// specEnv names the device, such as cuda:0,size=256MiB: with a size, since the
// suite fills it.
const specEnv = "HMCFS_CONFORMANCE_SPEC"

func TestConformance(t *testing.T) {
	text := os.Getenv(specEnv)
	if text == "" {
		t.Skip("no device is named by " + specEnv)
	}
	spec, err := devices.ParseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	// One for all: a vendor's library is opened once in a process.
	// What it warns of is for the report: a driver that refuses kernels fails
	// nothing here, since the host does their work.
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "message"}),
		zapcore.AddSync(os.Stdout), zapcore.WarnLevel))
	families := daemon.Families(host.Options{Dir: t.TempDir()}, log)
	devicetest.Run(t, func(t *testing.T) devices.Device {
		for _, driver := range families.Drivers() {
			if driver.Family() != spec.Family {
				continue
			}
			dev, err := driver.Open(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			return dev
		}
		t.Fatalf("no family %s", spec.Family)
		return nil
	})
}
