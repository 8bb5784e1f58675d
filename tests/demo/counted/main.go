// Counted prints the number of bytes that a mount has moved by each path, from its
// .hmcfs/stats: a line "PATH BYTES" for each, summed over all devices.
//
//	counted MOUNTPOINT/.hmcfs/stats
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "counted:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: counted MOUNTPOINT/.hmcfs/stats")
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	sums, err := sum(data)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	for _, path := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintln(out, path, sums[path])
	}
	return nil
}

// sum adds up the bytes of each path.
func sum(data []byte) (map[string]uint64, error) {
	var stats struct {
		Transfers struct {
			Paths []struct {
				Path  string `json:"path"`
				Bytes uint64 `json:"bytes"`
			} `json:"paths"`
		} `json:"transfers"`
	}
	if err := json.Unmarshal(data, &stats); err != nil {
		return nil, err
	}
	sums := map[string]uint64{}
	for _, p := range stats.Transfers.Paths {
		sums[p.Path] += p.Bytes
	}
	return sums, nil
}
