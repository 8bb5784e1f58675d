package daemon

import (
	"errors"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
)

// TestParamsAreThoseOfTheDrivers passes every driver each parameter that the command line
// accepts, and one more.
func TestParamsAreThoseOfTheDrivers(t *testing.T) {
	values := map[config.ParamKind]string{
		config.ParamSize: "1MiB", config.ParamRate: "1GB/s", config.ParamTime: "5us", config.ParamBool: "false",
	}
	params := map[string][]config.Param{}
	for _, f := range FamilyParams() {
		params[f.Name] = f.Params
	}
	for _, driver := range Families(host.Options{Dir: t.TempDir()}, nil).Drivers() {
		family := string(driver.Family())
		text := family + ":0"
		for _, p := range params[family] {
			value := values[p.Kind]
			if p.Kind == config.ParamWord {
				value = p.Words[0]
			}
			text += "," + p.Name + "=" + value
		}
		if len(params[family]) == 0 {
			t.Errorf("nothing is known of the parameters of %s", family)
		}
		// A parameter that the driver does not know stops it before it
		// takes anything of the machine.
		spec, err := devices.ParseSpec(text + ",nosuch=1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = driver.Open(t.Context(), spec)
		if err == nil {
			t.Fatalf("%s opens with a parameter that is not there", family)
		}
		if errors.Is(err, devices.ErrNoDevice) {
			continue // the machine has none of the family
		}
		if message := err.Error(); strings.Count(message, "no parameter") != 1 || !strings.HasSuffix(message, `"nosuch"`) {
			t.Errorf("%s: %s", family, message)
		}
	}
}

func TestOpenSpecsNamesTheDeviceOnce(t *testing.T) {
	reg := Families(host.Options{Dir: t.TempDir()}, nil)
	for text, want := range map[string]string{
		"sim:0,size=1MiB,maxalloc=2MiB": "maxalloc",
		"host:1":                        "there is only one host",
		"sim:0,nosuch=1":                "no parameter",
		"nope:0":                        "unknown family",
	} {
		devs, err := openSpecs(t.Context(), reg, []string{"sim:7,size=1MiB", text})
		if len(devs) != 0 {
			t.Errorf("%s: %d devices are open", text, len(devs))
		}
		if _, ok := errors.AsType[*SpecError](err); !ok {
			t.Errorf("%s: %v is no fault of the specification", text, err)
			continue
		}
		if message := err.Error(); strings.Count(message, text) != 1 || !strings.Contains(message, want) {
			t.Errorf("%s: %s", text, message)
		}
	}
}
