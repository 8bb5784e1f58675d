package cli

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// readSecret reads the secret, or makes one where the file is missing.
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

// makeSecret writes a new secret, whole or not at all, for the owner's eyes.
func makeSecret(path string) ([]byte, error) {
	var p [32]byte
	// It never fails: the runtime ends the process where the kernel has no
	// random bytes.
	_, _ = rand.Read(p[:])
	secret := hex.AppendEncode(nil, p[:])
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a secret: %w", err)
	}
	_, err = fmt.Fprintf(f, "%s\n", secret)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return nil, fmt.Errorf("make a secret: %w", err)
	}
	return secret, nil
}
