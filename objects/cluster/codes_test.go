package cluster

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// numbers returns the codes of all errors that the layers export. They are part of the
// protocol and never change.
func numbers() map[string]rpc.Code {
	return map[string]rpc.Code{
		"metadata.ErrNotExist": 0x20, "metadata.ErrExist": 0x21, "metadata.ErrNotDir": 0x22,
		"metadata.ErrIsDir": 0x23, "metadata.ErrNotEmpty": 0x24, "metadata.ErrNameTooLong": 0x25,
		"metadata.ErrInvalidName": 0x26, "metadata.ErrInvalid": 0x27, "metadata.ErrInvalidKey": 0x28,
		"metadata.ErrPermission": 0x29, "metadata.ErrCrossDevice": 0x2a, "metadata.ErrTooManyLinks": 0x2b,
		"metadata.ErrNoXattr": 0x2c, "metadata.ErrRange": 0x2d, "metadata.ErrFull": 0x2e,
		"metadata.ErrTooLarge": 0x2f, "metadata.ErrNoKey": 0x30, "metadata.ErrReadOnly": 0x31,
		"metadata.ErrClosed": 0x32, "metadata.ErrChanged": 0x33, "metadata.ErrNewer": 0x34,
		"metadata.ErrCorrupt": 0x35, "metadata.ErrQuota": 0x36, "metadata.ErrXattrSpace": 0x37,
		"metadata.ErrNoSpace": 0x38,

		"objects.ErrLost": 0x40, "objects.ErrDamaged": 0x41, "objects.ErrUnsupported": 0x42,
		"objects.ErrReadOnly": 0x43, "objects.ErrInvalid": 0x44, "objects.ErrNoData": 0x45,
		"objects.ErrTooLarge": 0x46, "objects.ErrBusy": 0x47, "objects.ErrForbidden": 0x48,
		"objects.ErrInconsistent": 0x49, "objects.ErrWithdrawn": 0x4a, "objects.ErrClosed": 0x4b,

		"devices.ErrOutOfMemory": 0x60, "devices.ErrHandle": 0x61, "devices.ErrLost": 0x62,
		"devices.ErrClosed": 0x63, "devices.ErrNoDevice": 0x64, "devices.ErrForeign": 0x65,
		"devices.ErrRange": 0x66, "devices.ErrDevice": 0x67, "devices.ErrUnsupported": 0x68,

		"cluster.ErrNoNode": 0x80, "cluster.ErrUnreachable": 0x81, "cluster.ErrStale": 0x82,
		"cluster.ErrDenied": 0x83, "cluster.ErrVersion": 0x84,
	}
}

// TestEveryErrorHasItsCode finds the errors that the layers export in their source, so that a
// new one can't be forgotten, and checks the conversion of each in both directions.
func TestEveryErrorHasItsCode(t *testing.T) {
	c := newCodes()
	byCode := map[rpc.Code]error{}
	for _, r := range c.rules {
		if other := byCode[r.code]; other != nil {
			t.Errorf("code %#x is of %v and of %v", r.code, other, r.err)
		}
		byCode[r.code] = r.err
		if r.code < 16 || r.code >= proto.CodeErrno {
			t.Errorf("code %#x of %v is not ours to give", r.code, r.err)
		}
	}
	known := numbers()
	for pkg, dir := range map[string]string{
		"metadata": "../../metadata", "devices": "../../devices", "objects": "..", "transport": "../../transport", "cluster": ".",
	} {
		for _, name := range exportedErrors(t, dir) {
			code, ok := known[pkg+"."+name]
			if !ok {
				t.Errorf("%s.%s has no code: add it to codes.go and to this test", pkg, name)
				continue
			}
			if byCode[code] == nil {
				t.Errorf("%s.%s: no rule has code %#x", pkg, name, code)
			}
		}
	}
}

// exportedErrors returns the names of the variables ErrX of a package.
func exportedErrors(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range tree.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}
			ast.Inspect(group, func(n ast.Node) bool {
				if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Err") {
					names = append(names, spec.Names[0].Name)
				}
				return true
			})
		}
	}
	return names
}

// TestErrorsTravel sends each error and checks it on the other side.
func TestErrorsTravel(t *testing.T) {
	c := newCodes()
	for _, r := range c.rules {
		there := fmt.Errorf("open inode 7: %w", r.err)
		here := c.received("b", &rpc.Error{Peer: 9, Code: c.code(there), Text: there.Error()})
		if !errors.Is(here, r.err) {
			t.Errorf("%v came as %v", there, here)
		}
		if want := "node b: " + there.Error(); here.Error() != want {
			t.Errorf("%q reads %q", there, here)
		}
	}
	shape := c.received("b", &rpc.Error{Code: c.code(fmt.Errorf("receive: %w", &objects.ShapeError{Want: []uint64{1}}))})
	if _, ok := errors.AsType[*objects.ShapeError](shape); !ok {
		t.Errorf("a shape that does not fit came as %v", shape)
	}
	full := c.received("b", &rpc.Error{Code: c.code(&devices.OutOfMemoryError{Device: "sim0"})})
	if !errors.Is(full, devices.ErrOutOfMemory) {
		t.Errorf("a device that is full came as %v", full)
	}
	for _, number := range []syscall.Errno{syscall.EPERM, syscall.ENOSPC, syscall.EMFILE, syscall.ERFKILL} {
		if err := c.received("b", &rpc.Error{Code: c.code(fmt.Errorf("stat: %w", number))}); !errors.Is(err, number) {
			t.Errorf("%v came as %v", number, err)
		}
	}
	for _, number := range []syscall.Errno{syscall.ENOSYS, 200, 511, 512, 513, 4095} {
		err := c.received("b", &rpc.Error{Code: proto.CodeErrno + rpc.Code(number)})
		if _, is := errors.AsType[syscall.Errno](err); err == nil || is {
			t.Errorf("%v came as %v", number, err)
		}
	}
}

// TestFirstRuleDecides: an error that matches several rules has the code of the most
// informative one.
func TestFirstRuleDecides(t *testing.T) {
	c := newCodes()
	for _, s := range []struct {
		err  error
		want rpc.Code
	}{
		{nil, rpc.CodeUnknown},
		{errors.New("never heard of"), rpc.CodeUnknown},
		{syscall.Errno(0), rpc.CodeUnknown},
		{syscall.Errno(5000), rpc.CodeUnknown},
		{fmt.Errorf("%w: %w", ErrStale, metadata.ErrNotExist), proto.CodeStale},
		{errors.Join(devices.ErrDevice, devices.ErrOutOfMemory), 0x60},
		{fmt.Errorf("pull: %w: %w", ErrUnreachable, context.DeadlineExceeded), proto.CodeUnreachable},
		{fmt.Errorf("%w: %w", objects.ErrLost, syscall.EIO), 0x40},
		{fmt.Errorf("claim: %w", coord.ErrUnavailable), 0x91},
		{&metadata.VersionError{What: "inode"}, 0x34},
	} {
		if got := c.code(s.err); got != s.want {
			t.Errorf("%v: code %#x, want %#x", s.err, got, s.want)
		}
	}
}

// TestWithoutAnAnswer: errors of the endpoint are converted to ErrUnreachable, or are the
// caller's own.
func TestWithoutAnAnswer(t *testing.T) {
	c := newCodes()
	for _, gone := range []error{
		control.ErrDisconnected, comm.ErrNotConnected, comm.ErrClosed, context.DeadlineExceeded,
		control.ErrAuth, control.ErrSilent, control.ErrCover, control.ErrRefused, comm.ErrNoTransport,
		&rpc.Error{Code: rpc.CodeBusy}, &rpc.Error{Code: rpc.CodeClosing},
	} {
		if err := c.received("b", fmt.Errorf("call: %w", gone)); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%v came as %v", gone, err)
		}
	}
	own := c.received("b", fmt.Errorf("call: %w", context.Canceled))
	if errors.Is(own, ErrUnreachable) || !errors.Is(own, context.Canceled) {
		t.Errorf("the caller's end came as %v", own)
	}
	if err := c.received("b", nil); err != nil {
		t.Errorf("no error came as %v", err)
	}
	for _, code := range []rpc.Code{rpc.CodeUnknown, 0, 0xfff, 0x2000, 0xffff, proto.CodeErrno} {
		err := c.received("b", &rpc.Error{Peer: wire.Rank(1), Code: code, Text: "x"})
		if err == nil || errors.Unwrap(err) != nil {
			t.Errorf("code %#x came as %v, which is %v", code, err, errors.Unwrap(err))
		}
	}
	if err := c.received("b", &rpc.Error{Code: rpc.CodeDeadline}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline that passed there came as %v", err)
	}
}
