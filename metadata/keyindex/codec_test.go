package keyindex

import (
	"testing"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/coord"
)

// FuzzEntry decodes any entry of the service: it is either a valid key of a valid node, in
// the form in which it would be written, or invalid.
func FuzzEntry(f *testing.F) {
	f.Add("keys/a", []byte("b 5"))
	f.Add("keys/a/b", []byte("b 5"))
	f.Add("publish/a", []byte("b 18446744073709551616"))
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		r := &Registry{o: Options{Logger: zap.NewNop()}}
		place, err := r.placeOf(Keys, coord.Entry{Name: name, Value: value})
		if err != nil {
			if r.strange.Count() != 1 {
				t.Errorf("%q = %q is not counted", name, value)
			}
			return
		}
		if metadata.ValidKey(place.Key) != nil || nameOf(Keys, place.Key) != name || place.Node.Validate() != nil {
			t.Errorf("%q = %q is %+v", name, value, place)
		}
	})
}
