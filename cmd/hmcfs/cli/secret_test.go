package cli

import (
	"strings"
	"testing"
)

// TestGuessableSecret checks that secrets that can be guessed offline cause a warning, and
// keys do not.
func TestGuessableSecret(t *testing.T) {
	for secret, poor := range map[string]bool{
		"correcthorsebatt":                             true, // 16 letters
		"1234567890123456":                             true,
		"Passw0rdPassw0rd":                             true,
		strings.Repeat("a", 64):                        true,
		strings.Repeat("01", 32):                       true,
		"0123456789abcdef0123456789abcde":              true, // a digit less than 16 bytes have
		"0b6a2f1e9c3d5847a1f0e2d4c6b89573":             false,
		"6MIB6Zl7C1Wm0uLkY3rX8Q==":                     false,
		"Ks3XSV0wLZ6l4i4nV0q7bJmU1o1yXx0y5h8iJ7zq3tA=": false,
		"\x80\x01\xff\x10\x99\x42\xe7\x00\xb3\x5d\xc8\x2a\x71\x0f\x96\xee": false,
	} {
		warnings := guessable("F", []byte(secret))
		if (len(warnings) > 0) != poor {
			t.Errorf("%q: %v", secret, warnings)
		}
		for _, w := range warnings {
			if strings.Contains(w, secret) || !strings.Contains(w, "/dev/urandom") {
				t.Errorf("%q: %s", secret, w)
			}
		}
	}
}
