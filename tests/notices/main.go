// Notices prints the licences of all third-party code that is linked into the binary:
//
//	go run ./tests/notices >THIRD_PARTY_NOTICES
//
// It queries the go command for the packages of cmd/hmcfs, for both architectures, and reads
// the licences in the module cache and in the toolchain. A licence that is unknown or not
// among those allowed is an error: a person must then read it and add it to the table.
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
