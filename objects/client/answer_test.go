package client

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// A call may reach the daemon after the end of its session: the caller must learn whether that
// was our own Close or the daemon's exit.
func TestTold(t *testing.T) {
	open, closed := &Session{}, &Session{closed: true}
	for _, c := range []struct {
		name    string
		session *Session
		code    string
		want    error
	}{
		{"no code", open, "", nil},
		{"no session, open", open, adminapi.CodeNoSession, hetero.ErrDisconnected},
		{"no session, closed", closed, adminapi.CodeNoSession, hetero.ErrClosed},
		{"ending, closed", closed, adminapi.CodeEnding, hetero.ErrDisconnected},
		{"forbidden", closed, adminapi.CodeForbidden, hetero.ErrNotAuthorized},
	} {
		if err := c.session.errorOf(c.code, "words"); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
