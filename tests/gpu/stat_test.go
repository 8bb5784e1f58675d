package main

import (
	"fmt"
	"strings"
)

// stat is the beginning of /proc/PID/stat.
type stat struct {
	pid, parent int
	name        string
}

// parse reads "PID (NAME) STATE PARENT …".
func (s *stat) parse(text string) bool {
	pid, rest, ok := strings.Cut(text, " (")
	if !ok {
		return false
	}
	end := strings.LastIndex(rest, ") ")
	if end < 0 {
		return false
	}
	s.name = rest[:end]
	var state string
	_, err := fmt.Sscan(pid+" "+rest[end+2:], &s.pid, &state, &s.parent)
	return err == nil
}
