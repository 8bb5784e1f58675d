// Notices prints the licences of everything of others that is linked into the
// binary:
//
//	go run ./tests/notices >THIRD_PARTY_NOTICES
//
// It asks the go command what cmd/hmcfs is built from, for both architectures,
// and reads the licences in the module cache and in the toolchain. A licence
// that it does not know, or that is not among those allowed, is an error: a
// person then reads it and adds it to the table.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	text, err := Notices(context.Background(), ".")
	if err == nil {
		_, err = os.Stdout.WriteString(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}
