package metadata

import (
	"io/fs"
	"testing"
)

func TestFileMode(t *testing.T) {
	tests := map[Mode]fs.FileMode{
		TypeRegular | 0o644:       0o644,
		TypeDir | 0o3750:          fs.ModeDir | fs.ModeSetgid | fs.ModeSticky | 0o750,
		TypeRegular | 0o4711:      fs.ModeSetuid | 0o711,
		TypeSymlink | 0o777:       fs.ModeSymlink | 0o777,
		TypeFIFO:                  fs.ModeNamedPipe,
		TypeSocket | 0o1:          fs.ModeSocket | 1,
		TypeBlock | 0o660:         fs.ModeDevice | 0o660,
		TypeChar | 0o7000 | 0o600: fs.ModeDevice | fs.ModeCharDevice | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky | 0o600,
	}
	for mode, want := range tests {
		if got := mode.FileMode(); got != want {
			t.Errorf("%o is %v, want %v", uint32(mode), got, want)
		}
	}
}

func TestTimespecAfter(t *testing.T) {
	order := []Timespec{{Sec: -5, Nsec: 9}, {Sec: -1}, {Sec: -1, Nsec: 1}, {}, {Nsec: 5}, {Sec: 1}}
	for i, a := range order {
		for j, b := range order {
			if a.After(b) != (i > j) {
				t.Errorf("%v after %v is %v", a, b, a.After(b))
			}
		}
	}
}
