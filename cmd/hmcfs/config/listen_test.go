package config_test

import (
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
)

func TestListenAddress(t *testing.T) {
	for text, want := range map[string]string{
		":9464": "127.0.0.1:9464", "0.0.0.0:9464": "0.0.0.0:9464", "[::]:1": "[::]:1", "gpu-07:0": "gpu-07:0",
	} {
		if got := config.ListenAddress(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	for _, option := range []string{"metrics", "http"} {
		for text, valid := range map[string]bool{
			":9464": true, "127.0.0.1:0": true, "[::1]:65535": true, "9464": false, "host": false, "host:": false, "host:http": false,
			"host:65536": false, "host:-1": false, "::1:80": false, "http://host:80": false, "unix:/a": false,
		} {
			_, err := config.Resolve(config.Inputs{Flags: map[string][]config.Given{option: {{Text: text, Source: "flag --" + option}}}})
			if valid != (err == nil) || err != nil && !strings.Contains(err.Error(), option+": \""+text+"\" is not HOST:PORT") {
				t.Errorf("--%s %s: %v", option, text, err)
			}
		}
	}
}
