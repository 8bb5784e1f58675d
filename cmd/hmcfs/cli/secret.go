package cli

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"unicode"
)

// keyBits is the minimum entropy, in bits, of a secret that is hard to guess: guesses can
// be tested offline against a recorded connection.
const keyBits = 128

// readSecret reads the secret, or with create writes a new one if the file does not exist.
func readSecret(path string, create bool) ([]byte, error) {
	if path == "" {
		return nil, usage(errors.New("--secret-file is missing: both sides need the same secret"))
	}
	text, err := os.ReadFile(path)
	if create && errors.Is(err, fs.ErrNotExist) {
		return makeSecret(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the secret: %w", err)
	}
	secret := []byte(strings.TrimSpace(string(text)))
	if len(secret) < 16 {
		return nil, usage(fmt.Errorf("the secret in %s has %d bytes; use 16 or more", path, len(secret)))
	}
	return secret, nil
}

// guessable warns about a secret that is easier to guess than a key even if its characters
// are random. Words that are long enough are not detected.
func guessable(path string, secret []byte) []string {
	bits := int(float64(len(secret)) * math.Log2(float64(alphabet(secret))))
	if bits >= keyBits {
		return nil
	}
	return []string{fmt.Sprintf("the secret in %s has at most %d bits of entropy, fewer than the %d of a key, and can be guessed offline from a recorded connection; make it of 32 random bytes: head -c 32 /dev/urandom | base64", path, bits, keyBits)}
}

// alphabet returns the size of the character classes that occur in a secret, or the number
// of different characters if it repeats a few.
func alphabet(secret []byte) int {
	const few = 6
	have, kinds := map[byte]bool{}, map[int]bool{}
	for _, b := range secret {
		have[b] = true
		switch {
		case b > unicode.MaxASCII || b < ' ':
			return math.MaxUint8 + 1
		case b >= '0' && b <= '9':
			kinds[10] = true
		case b >= 'a' && b <= 'f':
			kinds[6] = true
		case b >= 'g' && b <= 'z':
			kinds[20] = true
		case b >= 'A' && b <= 'Z':
			kinds[26] = true
		default:
			kinds[33] = true
		}
	}
	if len(have) < few {
		return max(len(have), 1)
	}
	n := 0
	for size := range kinds {
		n += size
	}
	return n
}

// makeSecret writes a new secret atomically, readable only by the owner.
func makeSecret(path string) ([]byte, error) {
	var p [32]byte
	// Read never fails: the runtime ends the process if the kernel has no random bytes.
	_, _ = rand.Read(p[:])
	secret := hex.AppendEncode(nil, p[:])
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create a secret: %w", err)
	}
	_, err = fmt.Fprintf(f, "%s\n", secret)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return nil, fmt.Errorf("create a secret: %w", err)
	}
	return secret, nil
}
