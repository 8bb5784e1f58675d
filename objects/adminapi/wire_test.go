package adminapi_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
)

// TestWirePage checks that docs/wire.md, from which clients in other languages are written, names every field of the JSON that they
// exchange, and every code of a failure.
func TestWirePage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "wire.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, page, found := strings.Cut(string(text), "\n## Sessions of clients\n")
	if !found {
		t.Fatal("the page has no section about sessions")
	}
	page, _, _ = strings.Cut(page, "\n## ")
	named := func(what, name string) {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/wire.md lacks %s of %s", name, what)
		}
	}
	for _, v := range []any{
		adminapi.Register{},
		adminapi.Registered{},
		adminapi.BindRequest{},
		adminapi.ExportRequest{},
		adminapi.BindAnswer{},
		adminapi.EndAnswer{},
		adminapi.CollectRequest{},
		adminapi.CollectAnswer{},
		adminapi.VerifyRequest{},
		adminapi.VerifyAnswer{},
		adminapi.Different{},
		adminapi.KeysRequest{},
		adminapi.KeysAnswer{},
		adminapi.EventsAnswer{},
		adminapi.Key{},
		adminapi.Event{},
		share.Memory{},
		share.Piece{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" {
				named(reflect.TypeOf(v).String(), name)
			}
		}
	}
	for _, s := range hetero.Statuses() {
		named("the codes", s.Name)
	}
	for _, code := range []string{
		adminapi.CodeBusy, adminapi.CodeForbidden, adminapi.CodeNotFound, adminapi.CodeInvalid, adminapi.CodeInternal,
		adminapi.CodeUnsupported, adminapi.CodeLost, adminapi.CodeNoMemory, adminapi.CodeEnding, adminapi.CodeNoSession,
	} {
		named("the codes", code)
	}
}
