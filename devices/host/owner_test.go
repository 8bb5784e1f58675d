package host

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

func TestFilesBelongToOneOwner(t *testing.T) {
	each(t, func(t *testing.T, mode Mode) {
		o := options(t, mode)
		d := open(t, o, "host,size=16MiB")
		for _, owner := range []string{"a", "a", "b"} {
			if err := d.Files().Claim(owner); err != nil {
				t.Fatalf("a tier without files refuses %q: %v", owner, err)
			}
		}
		write(t, d, 7, []byte("content"))
		if err := d.Files().Claim("a"); !errors.Is(err, devices.ErrForeign) {
			t.Errorf("files of b claimed for a: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = open(t, o, "host,size=16MiB")
		if err := d.Files().Claim("b"); err != nil {
			t.Errorf("adopted files refuse their owner: %v", err)
		}
		if err := d.Files().Claim("a"); !errors.Is(err, devices.ErrForeign) {
			t.Errorf("adopted files of b claimed for a: %v", err)
		}
	})
}
