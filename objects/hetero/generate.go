package hetero

import (
	"crypto/rand"
	"encoding/hex"
)

// GenerateKey implements Directory.GenerateKey: it returns prefix or, if that is empty, a
// random UUID (version 4).
//
// Errors: ErrInvalid for a prefix that is no key.
func GenerateKey(prefix string) (string, error) {
	if prefix != "" {
		return prefix, CheckKey(prefix)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	text := hex.EncodeToString(id[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:], nil
}
