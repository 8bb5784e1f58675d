package config_test

import (
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/metadata"
)

func TestLimits(t *testing.T) {
	o := config.Options{Limits: []string{"user-names=1000", "user-xattr-bytes=1MiB", "user-names=2000"}}
	got, err := o.Records()
	if want := (metadata.Limits{UserNames: 2000, UserXattrBytes: 1 << 20}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	// Each limit of the store can be set, by the name that its metrics have.
	var store metadata.Store
	for _, l := range store.Limits() {
		o.Limits = []string{l.Name + "=5"}
		if got, err = o.Records(); err != nil || got == (metadata.Limits{}) {
			t.Errorf("%s: %+v, %v", l.Name, got, err)
		}
	}
	for _, text := range []string{"user-names", "user-names=", "user-names=0", "user-names=-1", "names=1", "", "=3"} {
		o.Limits = []string{text}
		if _, err := o.Records(); err == nil || !strings.HasPrefix(err.Error(), "limit: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
