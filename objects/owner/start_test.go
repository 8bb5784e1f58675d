package owner

import "testing"

// A program's name may look like the fields behind it.
func TestStartOf(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20 21"
	for _, name := range []string{"cat", "a b", ") S 1 2", "((", ")))", ""} {
		if start, err := startOf([]byte("4711 (" + name + ")" + rest)); err != nil || start != 987654 {
			t.Errorf("%q: %d, %v", name, start, err)
		}
	}
	for _, bad := range []string{"", "4711 (cat) S 1", "4711 (cat) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x"} {
		if start, err := startOf([]byte(bad)); err == nil {
			t.Errorf("%q: %d", bad, start)
		}
	}
}
