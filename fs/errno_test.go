package fs

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

type errnoCase struct {
	err  error
	want syscall.Errno
}

// sentinels returns all errors that the layers below export, by name.
func sentinels() map[string]errnoCase {
	return map[string]errnoCase{
		"metadata.ErrNotExist":     {metadata.ErrNotExist, syscall.ENOENT},
		"metadata.ErrExist":        {metadata.ErrExist, syscall.EEXIST},
		"metadata.ErrNotDir":       {metadata.ErrNotDir, syscall.ENOTDIR},
		"metadata.ErrIsDir":        {metadata.ErrIsDir, syscall.EISDIR},
		"metadata.ErrNotEmpty":     {metadata.ErrNotEmpty, syscall.ENOTEMPTY},
		"metadata.ErrNameTooLong":  {metadata.ErrNameTooLong, syscall.ENAMETOOLONG},
		"metadata.ErrInvalidName":  {metadata.ErrInvalidName, syscall.EINVAL},
		"metadata.ErrInvalid":      {metadata.ErrInvalid, syscall.EINVAL},
		"metadata.ErrPermission":   {metadata.ErrPermission, syscall.EPERM},
		"metadata.ErrCrossDevice":  {metadata.ErrCrossDevice, syscall.EXDEV},
		"metadata.ErrTooManyLinks": {metadata.ErrTooManyLinks, syscall.EMLINK},
		"metadata.ErrNoXattr":      {metadata.ErrNoXattr, syscall.ENODATA},
		"metadata.ErrRange":        {metadata.ErrRange, syscall.ERANGE},
		"metadata.ErrInvalidKey":   {metadata.ErrInvalidKey, syscall.EINVAL},
		"metadata.ErrFull":         {metadata.ErrFull, syscall.ENOSPC},
		"metadata.ErrXattrSpace":   {metadata.ErrXattrSpace, syscall.ENOSPC},
		"metadata.ErrQuota":        {metadata.ErrQuota, syscall.EDQUOT},
		"metadata.ErrChanged":      {metadata.ErrChanged, syscall.EIO},
		"metadata.ErrNewer":        {metadata.ErrNewer, syscall.EIO},
		"metadata.ErrCorrupt":      {metadata.ErrCorrupt, syscall.EIO},
		"metadata.ErrNoKey":        {metadata.ErrNoKey, syscall.EIO},
		"metadata.ErrReadOnly":     {metadata.ErrReadOnly, syscall.EIO},
		"metadata.ErrClosed":       {metadata.ErrClosed, syscall.EIO},
		"metadata.ErrTooLarge":     {metadata.ErrTooLarge, syscall.E2BIG},
		"metadata.ErrNoSpace":      {metadata.ErrNoSpace, syscall.ENOSPC},

		"devices.ErrOutOfMemory": {devices.ErrOutOfMemory, syscall.ENOSPC},
		"devices.ErrRange":       {devices.ErrRange, syscall.EIO},
		"devices.ErrLost":        {devices.ErrLost, syscall.EIO},
		"devices.ErrClosed":      {devices.ErrClosed, syscall.EIO},
		"devices.ErrDevice":      {devices.ErrDevice, syscall.EIO},
		"devices.ErrUnsupported": {devices.ErrUnsupported, syscall.EOPNOTSUPP},
		"devices.ErrNoDevice":    {devices.ErrNoDevice, syscall.EIO},
		"devices.ErrForeign":     {devices.ErrForeign, syscall.EIO},
		"devices.ErrHandle":      {devices.ErrHandle, syscall.EINVAL},

		"objects.ErrLost":         {objects.ErrLost, syscall.EIO},
		"objects.ErrUnsupported":  {objects.ErrUnsupported, syscall.EOPNOTSUPP},
		"objects.ErrInvalid":      {objects.ErrInvalid, syscall.EINVAL},
		"objects.ErrNoData":       {objects.ErrNoData, syscall.ENXIO},
		"objects.ErrTooLarge":     {objects.ErrTooLarge, syscall.EFBIG},
		"objects.ErrReadOnly":     {objects.ErrReadOnly, syscall.EOPNOTSUPP},
		"objects.ErrDamaged":      {objects.ErrDamaged, syscall.EIO},
		"objects.ErrBusy":         {objects.ErrBusy, syscall.EBUSY},
		"objects.ErrForbidden":    {objects.ErrForbidden, syscall.EPERM},
		"objects.ErrInconsistent": {objects.ErrInconsistent, syscall.EIO},
		"objects.ErrWithdrawn":    {objects.ErrWithdrawn, syscall.ENOENT},
		"objects.ErrClosed":       {objects.ErrClosed, syscall.ESHUTDOWN},

		"cluster.ErrNoNode":      {cluster.ErrNoNode, syscall.ENOENT},
		"cluster.ErrUnreachable": {cluster.ErrUnreachable, syscall.EHOSTUNREACH},
		"cluster.ErrStale":       {cluster.ErrStale, syscall.ESTALE},
		"cluster.ErrDenied":      {cluster.ErrDenied, syscall.EACCES},
		"cluster.ErrVersion":     {cluster.ErrVersion, syscall.EHOSTUNREACH},
	}
}

func TestErrnoOfSentinels(t *testing.T) {
	table := newErrnoTable(zap.NewNop())
	for name, c := range sentinels() {
		if got := table.errno(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		wrapped := fmt.Errorf("outer: %w", fmt.Errorf("inner: %w", c.err))
		if got := table.errno(wrapped); got != c.want {
			t.Errorf("%s wrapped: %v, want %v", name, got, c.want)
		}
	}
}

// TestErrnoKnowsEverySentinel finds the errors that the layers export in
// their source, so that a new one cannot be forgotten here.
func TestErrnoKnowsEverySentinel(t *testing.T) {
	known := sentinels()
	for _, pkg := range []string{"metadata", "devices", "objects", "objects/cluster", "transport"} {
		for _, name := range exportedErrors(t, pkg) {
			if _, ok := known[path.Base(pkg)+"."+name]; !ok {
				t.Errorf("%s.%s has no errno: add it to errno.go and to this test", pkg, name)
			}
		}
	}
}

// exportedErrors returns the names of the variables ErrX of a package.
func exportedErrors(t *testing.T, pkg string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
	must(t, err)
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must(t, err)
		for _, decl := range tree.Decls {
			names = append(names, errorVars(decl)...)
		}
	}
	return names
}

func errorVars(decl ast.Decl) []string {
	group, ok := decl.(*ast.GenDecl)
	if !ok || group.Tok != token.VAR {
		return nil
	}
	var names []string
	for _, spec := range group.Specs {
		values, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for _, name := range values.Names {
			if strings.HasPrefix(name.Name, "Err") {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

func TestErrnoOfOthers(t *testing.T) {
	table := newErrnoTable(zap.NewNop())
	for _, c := range []errnoCase{
		{nil, 0},
		{context.Canceled, syscall.EINTR},
		{context.DeadlineExceeded, syscall.ETIMEDOUT},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, syscall.EACCES},
		{fmt.Errorf("write: %w", syscall.ENOSPC), syscall.ENOSPC},
		{syscall.ENOSYS, syscall.EIO},
		{fmt.Errorf("old kernel: %w", syscall.ENOSYS), syscall.EIO},
		{syscall.Errno(0), syscall.EIO},
		{fs.ErrClosed, syscall.EIO},
		{errors.New("never heard of"), syscall.EIO},
		{&devices.OutOfMemoryError{Device: "sim0"}, syscall.ENOSPC},
		{errors.Join(errors.New("x"), objects.ErrLost), syscall.EIO},
		{errors.Join(devices.ErrDevice, devices.ErrHandle), syscall.EINVAL},
	} {
		if got := table.errno(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestErrnoWarnsOnceForEachText(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	table := newErrnoTable(zap.New(core))
	for range 3 {
		table.status(errors.New("first"))
		table.status(errors.New("second"))
		table.status(metadata.ErrNotExist)
		table.status(&devices.OutOfMemoryError{Device: "cuda0", Asked: devices.GiB, Free: devices.MiB})
	}
	if n := logs.Len(); n != 3 {
		t.Errorf("%d warnings, want 3", n)
	}
	// A process that finds the device full sees ENOSPC; the log has what it can't see.
	full := logs.FilterMessage("request failed: out of device memory").All()
	if len(full) != 1 || !strings.Contains(fmt.Sprint(full[0].ContextMap()["error"]), "cuda0: out of memory: 1.0 GiB asked, 1.0 MiB free") {
		t.Errorf("of a full device the log has %v", full)
	}
	for i := range 2 * maxWarned {
		table.status(fmt.Errorf("offset %d", i))
	}
	if n := logs.Len(); n > maxWarned+1 {
		t.Errorf("%d warnings, want at most %d", n, maxWarned)
	}
}
