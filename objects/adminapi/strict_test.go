package adminapi_test

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

func TestUnmarshalIsStrict(t *testing.T) {
	var r adminapi.ExportRequest
	for _, bad := range []string{``, `{`, `[]`, `{"hol":true}`, `{} {}`, `{"holder":"x"}`, `{"ino":-1}`} {
		if err := adminapi.Unmarshal([]byte(bad), &r); !errors.Is(err, adminapi.ErrJSON) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := adminapi.Unmarshal([]byte(`{"path":"a","hold":true}`), &r); err != nil || r.Path != "a" || !r.Hold {
		t.Errorf("%+v, %v", r, err)
	}
}
