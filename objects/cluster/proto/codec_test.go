package proto

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// bodies returns all bodies, and all parts of bodies.
func bodies() []any {
	return []any{
		&Cred{}, &Hello{}, &Welcome{}, &Time{}, &Attr{}, &LookupAsk{}, &InoAsk{}, &ReadDirAsk{}, &Entry{},
		&ReadDirAnswer{}, &CreateAsk{}, &LinkAsk{}, &RemoveAsk{}, &RenameAsk{}, &SetAttrAsk{}, &XattrAsk{},
		&XattrAnswer{}, &ListXattrAnswer{}, &StatFSAnswer{}, &OpenAsk{}, &OpenAnswer{}, &HandleAsk{}, &MoveAsk{},
		&MoveAnswer{}, &AllocateAsk{}, &SeekAsk{}, &SeekAnswer{}, &CopyAsk{}, &PullAsk{}, &KeyAsk{}, &KeyAnswer{},
		&ListKeysAsk{}, &ListKeysAnswer{}, &ExpireKeyAsk{}, &ClaimAsk{}, &ClaimAnswer{}, &TakeAsk{},
		&Invalid{}, &HaveKeysAsk{}, &HaveKeysAnswer{},
		&CollectAsk{}, &CollectFile{}, &JobAsk{}, &CollectAnswer{}, &SumsAsk{}, &SumsAnswer{}, &CreateOpenAsk{},
		&CompareKeysAsk{}, &CompareKeysAnswer{}, &ReceivedAsk{}, &ReceivedAnswer{},
	}
}

func nameOf(body any) string { return reflect.TypeOf(body).Elem().Name() }

// fill assigns a distinct value to every field of a value.
func fill(v reflect.Value, n *uint64) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "_" {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(fmt.Appendf(nil, "bytes %d \xff\x00", *n))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(i) + *n)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("näme %d\xff", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(-int64(*n) << 33)
	case reflect.Uint32:
		v.SetUint(*n * 1000)
	case reflect.Uint64:
		v.SetUint(1<<62 + *n)
	default:
		panic("a kind that no body has: " + v.Kind().String())
	}
}

func full(body any) any {
	v := reflect.New(reflect.TypeOf(body).Elem())
	n := uint64(0)
	fill(v.Elem(), &n)
	return v.Interface()
}

func ignoreMarks() cmp.Option {
	var types []any
	for _, b := range bodies() {
		types = append(types, reflect.ValueOf(b).Elem().Interface())
	}
	return cmp.Options{cmpopts.IgnoreUnexported(types...), cmpopts.EquateEmpty()}
}

func mustEncode(t testing.TB, v any) []byte {
	t.Helper()
	p, err := Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestGolden pins the encoding of all bodies: other versions of hmcfs read them.
func TestGolden(t *testing.T) {
	var text strings.Builder
	for _, b := range bodies() {
		fmt.Fprintf(&text, "%s\n  zero %s\n  full %s\n", nameOf(b),
			hex.EncodeToString(mustEncode(t, b)), hex.EncodeToString(mustEncode(t, full(b))))
	}
	path := filepath.Join("testdata", "bodies.golden")
	if *rewrite {
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("bodies have other bytes (-rewrite if that is meant, and raise Version):\n%s", diff)
	}
}

func TestBodiesComeBack(t *testing.T) {
	for _, b := range bodies() {
		for _, in := range []any{b, full(b)} {
			out := reflect.New(reflect.TypeOf(in).Elem()).Interface()
			if err := Decode(mustEncode(t, in), out); err != nil {
				t.Errorf("%s: %v", nameOf(in), err)
				continue
			}
			if diff := cmp.Diff(in, out, ignoreMarks()); diff != "" {
				t.Errorf("%s:\n%s", nameOf(in), diff)
			}
		}
	}
}

// TestEveryBodyIsTested finds the bodies in their source.
func TestEveryBodyIsTested(t *testing.T) {
	var known []string
	for _, b := range bodies() {
		known = append(known, nameOf(b))
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if _, isStruct := spec.Type.(*ast.StructType); isStruct && spec.Name.IsExported() && !slices.Contains(known, spec.Name.Name) {
				t.Errorf("%s is in no test: add it to bodies()", spec.Name.Name)
			}
			return true
		})
	}
}

// TestDecodeIsStrict refuses everything that Encode would not have written.
func TestDecodeIsStrict(t *testing.T) {
	good := mustEncode(t, &LookupAsk{Cred: Cred{UID: 1, GID: 2, Groups: []uint32{3}}, Dir: 7, Name: "x"})
	for name, text := range map[string]string{
		"nothing":              "",
		"one field too many":   "84" + "83010281 03" + "07" + "4178" + "00",
		"one field too few":    "82" + "8301028103" + "07",
		"a byte behind it":     hex.EncodeToString(good) + "00",
		"cut":                  hex.EncodeToString(good[:len(good)-1]),
		"a map":                "a0",
		"null":                 "f6",
		"null for a field":     "83" + "8301028103" + "f6" + "4178",
		"null for a list":      "83" + "830102f6" + "07" + "4178",
		"a text string":        "83" + "8301028103" + "07" + "6178",
		"a long number":        "83" + "8301028103" + "1807" + "4178",
		"a float":              "83" + "8301028103" + "f94700" + "4178",
		"a negative number":    "83" + "8301028103" + "26" + "4178",
		"too large for uint32": "83" + "831b00000001000000000281" + "03" + "07" + "4178",
		"endless array":        "9f" + "8301028103" + "07" + "4178" + "ff",
		"endless string":       "83" + "8301028103" + "07" + "5f4178ff",
		"a tag":                "83" + "8301028103" + "c107" + "4178",
		"a bignum":             "83" + "8301028103" + "c24107" + "4178",
		"a simple value":       "83" + "8301028103" + "e0" + "4178",
	} {
		p, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		var out LookupAsk
		if err := Decode(p, &out); !errors.Is(err, ErrBody) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var out LookupAsk
	if err := Decode(good, &out); err != nil || out.Name != "x" {
		t.Errorf("what is good: %+v, %v", out, err)
	}
	for name, id := range map[string][]byte{
		"a short ID": append([]byte{0x4f}, make([]byte, 15)...),
		"a long ID":  append([]byte{0x51}, make([]byte, 17)...),
	} {
		var take TakeAsk
		if err := Decode(append(append([]byte{0x82}, id...), 0xf5), &take); !errors.Is(err, ErrBody) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBounds(t *testing.T) {
	at := Time{Nsec: 1_000_000_000}
	for name, body := range map[string]any{
		"groups":                   &LookupAsk{Cred: Cred{Groups: make([]uint32, MaxGroups+1)}},
		"groups of a creator":      &CreateOpenAsk{Create: CreateAsk{Cred: Cred{Groups: make([]uint32, MaxGroups+1)}}},
		"groups of others":         &PullAsk{Cred: Cred{Groups: make([]uint32, MaxGroups+1)}},
		"entries":                  &ReadDirAnswer{Entries: make([]Entry, MaxEntries+1)},
		"keys":                     &ListKeysAnswer{Keys: make([]string, maxElements+1)},
		"nanoseconds":              &Attr{Mtime: at},
		"nanoseconds of an open":   &OpenAnswer{Attr: Attr{Expires: at}},
		"nanoseconds of an entry":  &ReadDirAnswer{Entries: []Entry{{}, {Attr: Attr{Btime: at}}}},
		"nanoseconds to be set":    &SetAttrAsk{Atime: at},
		"the present of the ctime": &SetAttrAsk{Ctime: Time{Nsec: TimeNow}},
		"an end":                   &ExpireKeyAsk{At: at},
	} {
		out := reflect.New(reflect.TypeOf(body).Elem()).Interface()
		if err := Decode(mustEncode(t, body), out); !errors.Is(err, ErrBody) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, body := range map[string]any{
		"groups":      &LookupAsk{Cred: Cred{Groups: make([]uint32, MaxGroups)}},
		"entries":     &ReadDirAnswer{Entries: make([]Entry, MaxEntries)},
		"the present": &SetAttrAsk{Atime: Time{Nsec: TimeNow}, Mtime: Time{Nsec: TimeNow}},
	} {
		out := reflect.New(reflect.TypeOf(body).Elem()).Interface()
		if err := Decode(mustEncode(t, body), out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecode decodes arbitrary input as each body. Accepted input encodes to the same bytes,
// so that nothing has two interpretations.
func FuzzDecode(f *testing.F) {
	for i, b := range bodies() {
		f.Add(uint8(i), mustEncode(f, b))
		f.Add(uint8(i), mustEncode(f, full(b)))
	}
	f.Fuzz(func(t *testing.T, which uint8, p []byte) {
		all := bodies()
		body := all[int(which)%len(all)]
		if err := Decode(p, body); err != nil {
			if !errors.Is(err, ErrBody) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if again := mustEncode(t, body); !bytes.Equal(again, p) {
			t.Fatalf("%s: %x became %x", nameOf(body), p, again)
		}
	})
}

// TestDocumented: docs/wire.md has every method and every code.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "wire.md"))
	if err != nil {
		t.Fatal(err)
	}
	for m := MethodHello; m <= MethodSums; m++ {
		if !bytes.Contains(text, fmt.Appendf(nil, "\n| %d | ", m)) {
			t.Errorf("method %d is not in docs/wire.md", m)
		}
	}
	for _, last := range [][2]int{{0x10, 0x11}, {0x20, 0x35}, {0x40, 0x4c}, {0x60, 0x68}, {0x80, 0x85}, {0x90, 0x91}} {
		for code := last[0]; code <= last[1]; code++ {
			if !bytes.Contains(text, fmt.Appendf(nil, "| %#x | ", code)) {
				t.Errorf("code %#x is not in docs/wire.md", code)
			}
		}
	}
}
