package metadata

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// sample is one record in plain form and encoded.
type sample struct {
	name  string
	data  []byte
	value any
	read  func(data []byte) (any, error)
}

// hide lets cmp compare plain values that have unexported fields.
type hide struct{ v any }

func (h hide) Equal(o hide) bool { return fmt.Sprintf("%#v", h.v) == fmt.Sprintf("%#v", o.v) }

func readRecord(data []byte) (any, error) { r, err := decodeRecord(77, data); return hide{r}, err }
func readSuper(data []byte) (any, error)  { r, err := decodeSuperblock(data); return hide{r}, err }
func readDirent(data []byte) (any, error) { r, err := decodeDirent(data); return hide{r}, err }
func readMap(data []byte) (any, error) {
	r, err := decodeMapping(1<<40, data)
	return hide{r}, err
}

func readDevice(data []byte) (any, error)  { r, err := decodeDevice("sim0", data); return hide{r}, err }
func readLink(data []byte) (any, error)    { r, err := decodeLink(data); return hide{r}, err }
func readXattr(data []byte) (any, error)   { r, err := decodeXattr(data); return hide{r}, err }
func readBinding(data []byte) (any, error) { r, err := decodeBinding(data); return hide{r}, err }
func readNumber(data []byte) (any, error)  { r, err := decodeNumber("n", data); return hide{r}, err }

func readKeyHolder(data []byte) (any, error) {
	h, err := decodeKeyHolder(data)
	return hide{h}, err
}

func fullRecord() record {
	return record{
		Inode: Inode{
			Ino: 77, Gen: 0xfedcba9876543210, Mode: TypeSymlink | 0o7654,
			UID: 1<<32 - 1, GID: 65534, Nlink: 3, Rdev: 0x801, Size: 1<<63 + 5,
			Atime:  Timespec{Sec: -1 << 62, Nsec: 999_999_999},
			Mtime:  Timespec{Sec: 16_725_225_600, Nsec: 1}, // the year 2500
			Ctime:  Timespec{Sec: -1, Nsec: 500},
			Btime:  Timespec{Sec: 1<<63 - 1},
			Device: "sim0", Epoch: 1<<64 - 1, Allocated: 1 << 41,
			Parent: 1 << 50, Name: "näme\xff", Target: "../a/\nb", Key: "k;ey", Path: "d2d-peer",
		},
		xattrs: 7, maps: 300, firstMap: 1 << 20,
	}
}

func samples() []sample {
	full, zero := fullRecord(), record{Inode: Inode{Ino: 77}}
	bound := zero
	bound.Mode, bound.Bound = TypeRegular|0o600, BoundLost
	expires, taken := bound, zero
	expires.Expires = Timespec{Sec: -1 << 40, Nsec: 999_999_999}
	taken.Mode, taken.Bound, taken.Taken = TypeRegular|0o600, BoundLive, true
	parts := expires
	parts.Parts = 3
	fleeting := parts
	fleeting.Bound, fleeting.fleeting = BoundLive, true
	inline := fleeting
	inline.fleeting, inline.binding = false, []byte("a binding")
	super := superblock{format: 1, gen: 12345, created: Timespec{Sec: 1_800_000_000, Nsec: 5}}
	copy(super.hashKey[:], "0123456789abcdef")
	entry := dirent{ino: 1 << 40, mode: TypeDir, chained: true, name: "sub dir"}
	tomb := dirent{chained: true}
	mapping := Mapping{
		FileOff: 1 << 40, Len: 1 << 21, Written: 1<<21 - 7, Device: "cuda0", Epoch: 9,
		Allocation: 1<<64 - 2, Off: 4096, Pinned: true,
	}
	device := DeviceRecord{Name: "sim0", Ino: 1024, Epoch: 1 << 33}
	return []sample{
		{"inode", full.encode(nil), hide{full}, readRecord},
		{"inode_zero", zero.encode(nil), hide{zero}, readRecord},
		{"inode_bound", bound.encode(nil), hide{bound}, readRecord},
		{"inode_expires", expires.encode(nil), hide{expires}, readRecord},
		{"inode_parts", parts.encode(nil), hide{parts}, readRecord},
		{"inode_fleeting", fleeting.encode(nil), hide{fleeting}, readRecord},
		{"inode_inline", inline.encode(nil), hide{inline}, readRecord},
		{"inode_taken", taken.encode(nil), hide{taken}, readRecord},
		{"binding", append([]byte{bindingVersion}, "{}"...), hide{[]byte("{}")}, readBinding},
		{"superblock", super.encode(), hide{super}, readSuper},
		{"dirent", entry.encode(nil), hide{entry}, readDirent},
		{"dirent_tombstone", tomb.encode(nil), hide{tomb}, readDirent},
		{"mapping", encodeMapping(nil, &mapping), hide{mapping}, readMap},
		{"device", device.encode(nil), hide{device}, readDevice},
		{"link", encodeLink(nil, "a name"), hide{"a name"}, readLink},
		{"xattr", encodeXattr(nil, []byte{0, 1, 255}), hide{[]byte{0, 1, 255}}, readXattr},
		{"key", encodeKeyHolder(nil, keyHolder{ino: 1 << 63}), hide{keyHolder{ino: 1 << 63}}, readKeyHolder},
		{"key_part", encodeKeyHolder(nil, keyHolder{77, "h/0.npy"}), hide{keyHolder{77, "h/0.npy"}}, readKeyHolder},
		{"number", encodeNumber(nil, 1<<63), hide{uint64(1 << 63)}, readNumber},
	}
}

// TestGolden checks that records are written as they were before, so that a store survives
// an upgrade.
func TestGolden(t *testing.T) {
	for _, s := range samples() {
		file := filepath.Join("testdata", "records", s.name+".hex")
		if *rewrite {
			if err := os.WriteFile(file, []byte(hex.EncodeToString(s.data)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		golden, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(golden, s.data) {
			t.Errorf("%s is now written as\n%x\nbut was\n%x", s.name, s.data, golden)
		}
		got, err := s.read(golden)
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if diff := cmp.Diff(s.value, got); diff != "" {
			t.Errorf("%s reads back different:\n%s", s.name, diff)
		}
	}
}

// TestDamagedRecords cuts and extends every record, and raises its version.
func TestDamagedRecords(t *testing.T) {
	for _, s := range samples() {
		if s.name != "xattr" && s.name != "binding" { // whose value may have any length
			for n := range len(s.data) {
				if _, err := s.read(s.data[:n]); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s cut to %d bytes: %v, want ErrCorrupt", s.name, n, err)
				}
			}
			if _, err := s.read(append(bytes.Clone(s.data), 0)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s with a byte more: %v, want ErrCorrupt", s.name, err)
			}
		}
		s.checkVersions(t)
	}
}

// checkVersions gives a record versions that do not exist.
func (s sample) checkVersions(t *testing.T) {
	t.Helper()
	supported := byte(1)
	if strings.HasPrefix(s.name, "inode") {
		supported = inodeVersion
	}
	if strings.HasPrefix(s.name, "key") {
		supported = holderVersion
	}
	for _, v := range []byte{0, supported + 1, 255} {
		data := bytes.Clone(s.data)
		data[0] = v
		_, err := s.read(data)
		var newer *VersionError
		switch {
		case v == 0 && !errors.Is(err, ErrCorrupt):
			t.Errorf("%s of version 0: %v, want ErrCorrupt", s.name, err)
		case v > 0 && !errors.Is(err, ErrNewer), v > 0 && !errors.As(err, &newer):
			t.Errorf("%s of version %d: %v, want ErrNewer", s.name, v, err)
		case v > 0 && (newer.Found != uint64(v) || newer.Supported != uint64(supported)):
			t.Errorf("%s of version %d: %v", s.name, v, newer)
		}
	}
}

// TestVersionWithoutCause refuses an inode of a newer version than it needs.
func TestVersionWithoutCause(t *testing.T) {
	plain, bound := record{}, record{Inode: Inode{Bound: BoundLive}}
	for name, data := range map[string][]byte{
		"version 2 of an unbound inode": append(plain.encode(nil), byte(Unbound)),
		"version 3 of a plain inode":    append(plain.encode(nil), byte(Unbound), 0, 0, 0),
		"version 3 of a bound inode":    append(bound.encode(nil), 0, 0, 0),
	} {
		data[0] = 2
		if strings.HasPrefix(name, "version 3") {
			data[0] = 3
		}
		if _, err := readRecord(data); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
}

func TestTimespec(t *testing.T) {
	for _, tm := range []time.Time{
		time.Date(2500, 1, 1, 0, 0, 0, 999_999_999, time.UTC),
		time.Date(1901, 12, 13, 20, 45, 51, 1, time.UTC),
		time.Unix(-1, 999_999_999), time.Unix(0, 0),
	} {
		if got := TimespecOf(tm).Time(); !got.Equal(tm) {
			t.Errorf("%v comes back as %v", tm, got)
		}
	}
}

// fuzz checks that a decoder survives any input, and that what it accepts is written in a
// form that decodes to the same value.
func fuzz(f *testing.F, prefix string, read func([]byte) (any, error), write func(any) []byte) {
	f.Helper()
	for _, s := range samples() {
		if strings.HasPrefix(s.name, prefix) {
			f.Add(s.data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := read(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
				t.Fatalf("unexpected kind of error: %v", err)
			}
			return
		}
		again, err := read(write(as[hide](v).v))
		if err != nil {
			t.Fatalf("what was read is written unreadable: %v", err)
		}
		if !as[hide](v).Equal(as[hide](again)) {
			t.Fatalf("%#v comes back as %#v", v, again)
		}
	})
}

// as returns v's value of a type that it is known to have.
func as[T any](v any) T {
	value, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("%T is no %T", v, value))
	}
	return value
}

func FuzzInode(f *testing.F) {
	fuzz(f, "inode", readRecord, func(v any) []byte { r := as[record](v); return r.encode(nil) })
}

func FuzzSuperblock(f *testing.F) {
	fuzz(f, "superblock", readSuper, func(v any) []byte { r := as[superblock](v); return r.encode() })
}

func FuzzDirent(f *testing.F) {
	fuzz(f, "dirent", readDirent, func(v any) []byte { r := as[dirent](v); return r.encode(nil) })
}

func FuzzMapping(f *testing.F) {
	fuzz(f, "mapping", readMap, func(v any) []byte { r := as[Mapping](v); return encodeMapping(nil, &r) })
}

func FuzzDevice(f *testing.F) {
	fuzz(f, "device", readDevice, func(v any) []byte { r := as[DeviceRecord](v); return r.encode(nil) })
}

func FuzzLink(f *testing.F) {
	fuzz(f, "link", readLink, func(v any) []byte { return encodeLink(nil, as[string](v)) })
}

func FuzzXattr(f *testing.F) {
	fuzz(f, "xattr", readXattr, func(v any) []byte { return encodeXattr(nil, as[[]byte](v)) })
}

func FuzzNumber(f *testing.F) {
	fuzz(f, "number", readNumber, func(v any) []byte { return encodeNumber(nil, as[uint64](v)) })
}

// FuzzExpiry checks that a key that is accepted as an expiry record's is one that would be
// written.
func FuzzExpiry(f *testing.F) {
	tx := txn{chunk: viewChunk}
	for _, at := range []Timespec{{Sec: 5}, {Sec: -1 << 63, Nsec: 999_999_999}, {Nsec: 1}, {}} {
		f.Add(tx.expiryKey(at, 1024)[1:])
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		at, ino, err := parseExpiry(append([]byte{kindExpiry}, key...), encodeNumber(nil, 1))
		if errors.Is(err, ErrCorrupt) {
			return
		}
		tx := txn{chunk: viewChunk}
		if again := tx.expiryKey(at, ino); err != nil || !bytes.Equal(again[1:], key) {
			t.Fatalf("%x is read as inode %d at %v, %v, which is written as %x", key, ino, at, err, again)
		}
	})
}
